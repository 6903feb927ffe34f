// Runs one problem of a bundle on operands that hold zeros: example BUNDLE PROBLEM-KEY BYTES-OF-A BYTES-OF-B BYTES-OF-C
#include <cstdio>
#include <cstdlib>

#include "gemmtune.hpp"

namespace {

int fail(const std::string& message) {
    std::fprintf(stderr, "%s\n", message.c_str());
    return 1;
}

gemmtune::Error zeros(CUdeviceptr& address, const char* bytes) {
    size_t size = std::strtoull(bytes, nullptr, 10);
    if (auto error = gemmtune::detail::check("cuMemAlloc", cuMemAlloc(&address, size))) return error;
    return gemmtune::detail::check("cuMemsetD8", cuMemsetD8(address, 0, size));
}

}  // namespace

int main(int count, char** words) {
    if (count != 6) return fail("usage: example BUNDLE PROBLEM-KEY BYTES-OF-A BYTES-OF-B BYTES-OF-C");
    CUdevice device;
    CUcontext context;
    CUstream stream;  // waits for what the default stream writes, as the zeros; CU_STREAM_NON_BLOCKING would not
    if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context) ||
        cuStreamCreate(&stream, CU_STREAM_DEFAULT))
        return fail("there is no CUDA device");
    gemmtune::Bundle bundle;
    if (auto error = bundle.load(words[1])) return fail(error.message);
    gemmtune::Kernel kernel;
    if (auto error = kernel.load(bundle, words[2])) return fail(error.message);
    gemmtune::Operands operands;
    if (auto error = zeros(operands.a, words[3])) return fail(error.message);
    if (auto error = zeros(operands.b, words[4])) return fail(error.message);
    if (auto error = zeros(operands.c, words[5])) return fail(error.message);
    if (auto error = kernel.launch(stream, operands)) return fail(error.message);
    if (auto error = gemmtune::detail::check("cuStreamSynchronize", cuStreamSynchronize(stream))) return fail(error.message);
    std::printf("launched %s\n", words[2]);
    return 0;
}
