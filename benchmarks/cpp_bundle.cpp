// gemmtune.hpp as a shared library, so that a Python process can compare it with its own launcher on the same memory.
#include <chrono>
#include <cstring>
#include <string>

#include "gemmtune.hpp"

namespace {

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
    auto kernel = new gemmtune::Kernel;
    if (!failed(kernel->load(*static_cast<gemmtune::Bundle*>(bundle), problem), text, room)) return kernel;
    delete kernel;
    return nullptr;
}

void kernel_close(void* kernel) { delete static_cast<gemmtune::Kernel*>(kernel); }

// Enqueues the product `count` times; `host_us` becomes the host's time of one call.
int kernel_launch(void* kernel, CUstream stream, const gemmtune::Operands* operands, int count, double* host_us, char* text,
                  size_t room) {
    auto begun = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i)
        if (auto error = static_cast<gemmtune::Kernel*>(kernel)->launch(stream, *operands)) return failed(error, text, room);
    std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begun;
    *host_us = taken.count() / count;
    return 0;
}
}
