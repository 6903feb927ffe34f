// A driver that does nothing but print what it is asked, and a program that launches one problem of a bundle with it:
// stub BUNDLE PROBLEM-KEY A B C SOURCE BIAS ALPHA BETA SIZES-OF-VALUES…
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "gemmtune.hpp"

static const char* device_name = "NVIDIA H200";
static bool loads = true;
static CUresult current = CUDA_SUCCESS;
static CUdeviceptr next_address = 0x30000;
static int sizes[16], size_count = 0, size_next = 0;

extern "C" {
CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult, const char** name) {
    *name = "CUDA_ERROR_STUB";
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
    *device = 0;
    return current;
}
CUresult cuCtxSynchronize() { return CUDA_SUCCESS; }
CUresult cuDeviceGetName(char* name, int size, CUdevice) {
    std::strncpy(name, device_name, size);
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) {
    *value = 132;
    return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* address, size_t size) {
    *address = next_address;
    next_address += 0x1000;
    std::printf("alloc %zu\n", size);
    return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr) { return CUDA_SUCCESS; }
CUresult cuMemsetD8(CUdeviceptr address, unsigned char, size_t size) {
    std::printf("zero %llx %zu\n", address, size);
    return CUDA_SUCCESS;
}
CUresult cuLibraryLoadData(CUlibrary*, const void* data, void*, void*, unsigned, void*, void*, unsigned) {
    std::printf("load %d\n", std::memcmp(data, "\x7f" "ELF", 4));
    return loads ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuLibraryUnload(CUlibrary) { return CUDA_SUCCESS; }
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char* name) {
    char* kept = new char[64];
    std::strncpy(kept, name, 63);
    *kernel = reinterpret_cast<CUkernel>(kept);
    return CUDA_SUCCESS;
}
CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
    *function = reinterpret_cast<CUfunction>(kernel);
    return CUDA_SUCCESS;
}
// Two blocks on each of 132 multiprocessors.
CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig* config) {
    *clusters = 264 / static_cast<int>(config->attrs[0].value.clusterDim.x);
    return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, size_t) {
    *blocks = 2;
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    std::printf("attribute %s %d %d\n", reinterpret_cast<char*>(function), attribute, value);
    return CUDA_SUCCESS;
}
// The address, then everything that the box says.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill) {
    if (reinterpret_cast<uintptr_t>(map) % 64 || rank != 3) return CUDA_ERROR_INVALID_VALUE;
    std::memset(map, 0, sizeof *map);
    uint64_t words[11] = {reinterpret_cast<uint64_t>(address), extents[0], extents[1], extents[2], strides[0], strides[1],
                          box[0], box[1], static_cast<uint64_t>(type), static_cast<uint64_t>(swizzle),
                          static_cast<uint64_t>(promotion)};
    std::memcpy(map, words, sizeof words);
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments, void**) {
    std::printf("launch %s %u %u %u", reinterpret_cast<char*>(function), config->gridDimX, config->blockDimX,
                config->sharedMemBytes);
    unsigned cluster = 1, pdl = 0, together = 0;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        auto& attribute = config->attrs[i];
        if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) cluster = attribute.value.clusterDim.x;
        if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) pdl = 1;
        if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) together = 1;
    }
    std::printf(" %u %u %u ", cluster, pdl, together);
    // A packing pass has two jobs; the product comes last.
    int values = std::strcmp(reinterpret_cast<char*>(function), "pack") == 0 ? 2 : size_count - size_next;
    for (int value = 0; value < values; ++value)
        for (int byte = 0; byte < sizes[(size_next + value) % 16]; ++byte)
            std::printf("%02x", static_cast<unsigned char*>(arguments[value])[byte]);
    size_next += values;
    std::printf("\n");
    return CUDA_SUCCESS;
}
}

int main(int count, char** words) {
    if (const char* at = std::strchr(words[1], '@')) {
        // BUNDLE@NAME is a bundle on another device.
        device_name = at + 1;
        words[1][at - words[1]] = 0;
    }
    char* scales = std::strchr(words[2], '@');
    if (scales) *scales++ = 0;
    for (int word = 10; word < count; ++word) sizes[size_count++] = std::atoi(words[word]);
    gemmtune::Bundle bundle;
    if (auto error = bundle.load(words[1])) return std::fprintf(stderr, "%s\n", error.message.c_str()), 1;
    gemmtune::Kernel kernel;
    if (auto error = kernel.load(bundle, words[2])) return std::fprintf(stderr, "%s\n", error.message.c_str()), 1;
    auto address = [&](int word) { return std::strtoull(words[word], nullptr, 0); };
    gemmtune::Operands operands{address(3), address(4), address(5), address(6), address(7),
                                std::strtof(words[8], nullptr), std::strtof(words[9], nullptr)};
    // Addresses of scales, where the problem's name ends in them: PROBLEM@A,B.
    if (scales) operands.scale_a = std::strtoull(scales, &scales, 0), operands.scale_b = std::strtoull(scales + 1, nullptr, 0);
    if (auto error = kernel.launch(nullptr, operands)) return std::fprintf(stderr, "%s\n", error.message.c_str()), 1;
    return 0;
}
