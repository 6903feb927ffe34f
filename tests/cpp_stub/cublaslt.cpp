// A cuBLASLt that does nothing but print what it is told. It has algorithms 66 and 39, and 7, which it refuses; none of them
// has an inner shape.
#include <cublasLt.h>

#include <cstdio>
#include <cstring>

// Bytes of the library's attributes, by their numbers.
static const size_t kSizes[] = {4, 4, 4, 4, 4, 4, 4, 2, 2};
static uintptr_t made = 0;

extern "C" {
size_t cublasLtGetVersion() { return 130101; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_INVALID_VALUE";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    *handle = reinterpret_cast<cublasLtHandle_t>(7);
    std::printf("made\n");
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
    std::printf("freed\n");
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t compute, cudaDataType_t scalar) {
    *operation = reinterpret_cast<cublasLtMatmulDesc_t>(1);
    std::printf("made\ncompute %d %d\n", compute, scalar);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t) {
    std::printf("freed\n");
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t kind, const void* at,
                                              size_t bytes) {
    uint64_t value = 0;
    std::memcpy(&value, at, bytes);
    std::printf("operation %d %zu %llu\n", kind, bytes, static_cast<unsigned long long>(value));
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows, uint64_t columns,
                                          int64_t line) {
    *layout = reinterpret_cast<cublasLtMatrixLayout_t>(++made);
    std::printf("made\nlayout %d %llu %llu %lld\n", type, static_cast<unsigned long long>(rows),
                static_cast<unsigned long long>(columns), static_cast<long long>(line));
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t) {
    std::printf("freed\n");
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t kind,
                                                const void* at, size_t bytes) {
    int64_t value = 0;
    std::memcpy(&value, at, bytes);
    std::printf("matrix %d %d %zu %lld\n", static_cast<int>(reinterpret_cast<uintptr_t>(layout)), kind, bytes,
                static_cast<long long>(value));
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t, cublasComputeType_t compute, cudaDataType_t scalar, cudaDataType_t a,
                                      cudaDataType_t b, cudaDataType_t c, cudaDataType_t d, int id, cublasLtMatmulAlgo_t* made) {
    std::printf("init %d %d %d %d %d %d\n", compute, scalar, a, b, c, d);
    std::memset(made, 0, sizeof *made);
    std::memcpy(made, &id, sizeof id);
    return id == 66 || id == 39 || id == 7 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
// Each attribute has a word of the algorithm.
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* of, cublasLtMatmulAlgoConfigAttributes_t kind,
                                                    void* to, size_t bytes, size_t* written) {
    if (kind == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID || bytes != kSizes[kind]) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(to, reinterpret_cast<const char*>(of) + 4 * kind, *written = bytes);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t* of, cublasLtMatmulAlgoConfigAttributes_t kind,
                                                    const void* at, size_t bytes) {
    if (kind == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID || bytes != kSizes[kind]) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(reinterpret_cast<char*>(of) + 4 * kind, at, bytes);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t*, cublasLtMatmulAlgoCapAttributes_t kind, void* to,
                                                 size_t, size_t*) {
    const uint32_t multiples[] = {16, 8, 0, 2};
    std::memcpy(to, &multiples[kind - CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES], 4);
    return kind == CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t* of,
                                       cublasLtMatmulHeuristicResult_t* checked) {
    int id = 0;
    std::memcpy(&id, of, sizeof id);
    checked->workspaceSize = id == 39 ? 4096 : 0;
    checked->state = id == 7 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void* alpha, const void* a, cublasLtMatrixLayout_t,
                              const void* b, cublasLtMatrixLayout_t, const void* beta, const void* c, cublasLtMatrixLayout_t,
                              void* d, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t* of, void* workspace, size_t bytes,
                              cudaStream_t) {
    uint32_t scalars[2], words[9];
    std::memcpy(&scalars[0], alpha, 4), std::memcpy(&scalars[1], beta, 4), std::memcpy(words, of, sizeof words);
    std::printf("matmul %p %p %p %p %p %zu %x %x", a, b, c, d, workspace, bytes, scalars[0], scalars[1]);
    for (auto word : words) std::printf(" %u", word);
    std::printf("\n");
    return CUBLAS_STATUS_SUCCESS;
}
}
