// gemmtune.hpp and gemmtune/cublaslt.hpp as a shared library, so that a Python process can compare them with its own
// launchers on the same memory.
#include <chrono>
#include <cstring>
#include <string>

#include "gemmtune.hpp"
// Without cuBLASLt, kernels are compared alone.
#ifdef WITH_CUBLASLT
#include "gemmtune/cublaslt.hpp"
#endif

namespace {

// One problem: our kernel, or the library's algorithm.
struct Launcher {
    gemmtune::Kernel kernel;
#ifdef WITH_CUBLASLT
    gemmtune::Algorithm algorithm;
    bool ours = true;

    gemmtune::Error load(const gemmtune::Bundle& bundle, const std::string& problem) {
        ours = !bundle.algorithm(problem);
        return ours ? kernel.load(bundle, problem) : algorithm.load(bundle, problem);
    }
    gemmtune::Error launch(CUstream stream, const gemmtune::Operands& operands) {
        return ours ? kernel.launch(stream, operands) : algorithm.launch(stream, operands);
    }
#else
    gemmtune::Error load(const gemmtune::Bundle& bundle, const std::string& problem) { return kernel.load(bundle, problem); }
    gemmtune::Error launch(CUstream stream, const gemmtune::Operands& operands) { return kernel.launch(stream, operands); }
#endif
};

int failed(const gemmtune::Error& error, char* text, size_t room) {
    if (!error) return 0;
    std::strncpy(text, error.message.c_str(), room - 1);
    text[room - 1] = 0;
    return 1;
}

}  // namespace

extern "C" {

void* bundle_open(const char* folder, char* text, size_t room) {
    auto bundle = new gemmtune::Bundle;
    if (!failed(bundle->load(folder), text, room)) return bundle;
    delete bundle;
    return nullptr;
}

void* kernel_open(void* bundle, const char* problem, char* text, size_t room) {
    auto kernel = new Launcher;
    if (!failed(kernel->load(*static_cast<gemmtune::Bundle*>(bundle), problem), text, room)) return kernel;
    delete kernel;
    return nullptr;
}

void kernel_close(void* kernel) { delete static_cast<Launcher*>(kernel); }

// Enqueues the product `count` times; `host_us` becomes the host's time of one call.
int kernel_launch(void* kernel, CUstream stream, const gemmtune::Operands* operands, int count, double* host_us, char* text,
                  size_t room) {
    auto begun = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i)
        if (auto error = static_cast<Launcher*>(kernel)->launch(stream, *operands)) return failed(error, text, room);
    std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begun;
    *host_us = taken.count() / count;
    return 0;
}
}
