// Errors as values, of the driver too.
#pragma once

#include <cuda.h>

#include <string>

namespace gemmtune {

// An error; empty means success.
struct Error {
    std::string message;
    explicit operator bool() const { return !message.empty(); }
};

namespace detail {

inline Error check(const char* call, CUresult result) {
    if (result == CUDA_SUCCESS) return {};
    const char* name = nullptr;
    cuGetErrorName(result, &name);
    std::string fix;
    if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_NOT_INITIALIZED)
        fix = ": no CUDA context is current in this thread; call cuInit and cuCtxSetCurrent, or cudaSetDevice, first";
    return {std::string(call) + ": " + (name ? name : "unknown error") + fix};
}

}  // namespace detail

}  // namespace gemmtune
