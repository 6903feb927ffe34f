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
    return {std::string(call) + ": " + (name ? name : "unknown error")};
}

}  // namespace detail

}  // namespace gemmtune
