// cublaslt.hpp: runs the cuBLASLt algorithms of a bundle, for problems for which one of them was the fastest. Programs that
// include it link -lcublasLt, of the version that measured, beside the driver API that gemmtune.hpp needs.
//
//     gemmtune::Algorithm algorithm;  // one for each stream: calls share its workspace
//     if (auto error = algorithm.load(bundle, "gemm:bf16,bf16,bf16,f32:nt:64x128256x4096:b1:none")) return fail(error.message);
//     if (auto error = algorithm.launch(stream, {a, b, c})) return fail(error.message);
#pragma once

#include <cublasLt.h>
#include <cuda.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "gemmtune.hpp"

namespace gemmtune {

namespace detail {

inline Error check(const char* call, cublasStatus_t status) {
    if (status == CUBLAS_STATUS_SUCCESS) return {};
    return {std::string(call) + ": " + cublasLtGetStatusName(status)};
}

// An attribute as texts name it, and the bytes that the library takes of it.
template <class Kind>
struct Named {
    const char* name;
    Kind kind;
    size_t bytes;
};

inline constexpr Named<cublasLtMatmulDescAttributes_t> kOperation[] = {
    {"TRANSA", CUBLASLT_MATMUL_DESC_TRANSA, 4},
    {"TRANSB", CUBLASLT_MATMUL_DESC_TRANSB, 4},
    {"EPILOGUE", CUBLASLT_MATMUL_DESC_EPILOGUE, 4},
    {"FAST_ACCUM", CUBLASLT_MATMUL_DESC_FAST_ACCUM, 1},
    {"BIAS_DATA_TYPE", CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 4},
    {"A_SCALE_MODE", CUBLASLT_MATMUL_DESC_A_SCALE_MODE, 4},
    {"B_SCALE_MODE", CUBLASLT_MATMUL_DESC_B_SCALE_MODE, 4}};
inline constexpr Named<cublasLtMatmulAlgoConfigAttributes_t> kAttributes[] = {
    {"ID", CUBLASLT_ALGO_CONFIG_ID, 4},
    {"TILE_ID", CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
    {"STAGES_ID", CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
    {"SPLITK_NUM", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
    {"REDUCTION_SCHEME", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
    {"CTA_SWIZZLING", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
    {"CUSTOM_OPTION", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
    {"INNER_SHAPE_ID", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
    {"CLUSTER_SHAPE_ID", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
};

// The entry of a name; nullptr for a name that this header does not know.
template <class Kind, size_t count>
const Named<Kind>* named(const Named<Kind> (&all)[count], const std::string& name) {
    for (auto& each : all)
        if (name == each.name) return &each;
    return nullptr;
}

// The bits of the f16 nearest to a number, to the even one of two.
inline uint16_t half_bits(float value) {
    auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
    float size = std::fabs(value);
    if (!(size < 65520.0f)) return static_cast<uint16_t>(std::isnan(value) ? 0x7e00 : sign | 0x7c00);
    int exponent = -24;
    if (size > 0) std::frexp(size, &exponent);
    int last = std::max(exponent - 11, -24);  // exponent of the last bit that f16 has
    auto units = static_cast<int>(std::nearbyint(std::ldexp(size, -last)));
    return static_cast<uint16_t>(sign | (((last + 24) << 10) + units));
}

// Alpha or beta, as the library reads it on the host: f16 beside f16 sums, whole beside whole ones.
struct Scalar {
    alignas(4) unsigned char bytes[4] = {};
    template <class Number>
    void put(Number number) {
        std::memcpy(bytes, &number, sizeof number);
    }
    Scalar(int type, float value) {
        if (type == CUDA_R_32I) put(static_cast<int32_t>(value));
        else if (type == CUDA_R_16F) put(half_bits(value));
        else put(value);
    }
};

}  // namespace detail

// The algorithm of the library that was the fastest for one problem, on the current device, for one stream.
class Algorithm {
public:
    Algorithm() = default;
    Algorithm(const Algorithm&) = delete;
    Algorithm& operator=(const Algorithm&) = delete;
    ~Algorithm() { release(); }

    // Rebuilds the algorithm of a problem, named by its key, and allocates its workspace. Replaces what was loaded. The first
    // launch loads the library's kernel: launch once before a capture.
    Error load(const Bundle& bundle, const std::string& problem) {
        release();
        auto error = prepare(bundle, problem);
        if (error) release();
        return error;
    }

    // Enqueues the product; addresses and scalars are read before it returns.
    Error launch(CUstream stream, const Operands& operands) {
        if (!handle_) return {"no algorithm is loaded: load() first, and see what it returns"};
        if (auto error = arrays_.take(operands)) return error;
        if (operands.bias)
            if (auto error = point(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias)) return error;
        if (operands.scale_a)
            if (auto error = point_scales(operands.scale_a, operands.scale_b)) return error;
        const detail::Scalar alpha(text_.scalar, operands.alpha), beta(text_.scalar, operands.beta);
        // C is row-major here and column-major there: the library computes the transposed product, and takes B first.
        return detail::check(
            "cublasLtMatmul",
            cublasLtMatmul(handle_, operation_, alpha.bytes, at(operands.b), first_, at(operands.a), second_, beta.bytes,
                           at(operands.source ? operands.source : operands.c), source_, at(operands.c), output_, &algorithm_,
                           at(workspace_), workspace_bytes_, stream));
    }

private:
    detail::AlgorithmText text_;
    detail::Arrays arrays_;
    cublasLtHandle_t handle_ = nullptr;
    cublasLtMatmulDesc_t operation_ = nullptr;
    cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, source_ = nullptr, output_ = nullptr;
    cublasLtMatmulAlgo_t algorithm_ = {};
    CUdeviceptr workspace_ = 0;
    size_t workspace_bytes_ = 0;

    static void* at(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
    cublasComputeType_t compute() const { return static_cast<cublasComputeType_t>(text_.compute); }
    cudaDataType_t scalar() const { return static_cast<cudaDataType_t>(text_.scalar); }

    void release() {
        for (auto layout : {first_, second_, source_, output_})
            if (layout) cublasLtMatrixLayoutDestroy(layout);
        if (operation_) cublasLtMatmulDescDestroy(operation_);
        if (workspace_) cuMemFree(workspace_);
        if (handle_) cublasLtDestroy(handle_);
        text_ = {}, arrays_ = {}, handle_ = nullptr, operation_ = nullptr, algorithm_ = {}, workspace_ = 0, workspace_bytes_ = 0;
        first_ = second_ = source_ = output_ = nullptr;
    }

    Error prepare(const Bundle& bundle, const std::string& problem) {
        auto text = bundle.algorithm(problem);
        if (!text)
            return {bundle.plan(problem) ? problem + " has a kernel of the bundle's own: load a gemmtune::Kernel"
                                         : "the bundle has no algorithm for " + problem + ": the library is to be kept"};
        // Another device may be current than when the bundle was loaded.
        if (auto error = bundle.check_device()) return error;
        text_ = detail::AlgorithmText::of(*text);
        // Attributes are numbers of one version: another may give them another meaning.
        if (auto here = std::to_string(cublasLtGetVersion()); here != text_.version)
            return {problem + " was measured with cuBLASLt " + text_.version + ", this program runs " + here +
                    ": link the former, or measure again with the latter"};
        if (auto error = detail::check("cublasLtCreate", cublasLtCreate(&handle_))) return error;
        if (auto error = describe()) return error;
        if (auto error = rebuild()) return error;
        align("a", CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES), align("b", CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES);
        align("source", CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES), align("c", CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES);
        arrays_ = detail::Arrays::of(problem, text_.alignment);
        return workspace_bytes_ ? detail::check("cuMemAlloc", cuMemAlloc(&workspace_, workspace_bytes_)) : Error{};
    }

    // Tells the library of the product.
    Error describe() {
        auto status = cublasLtMatmulDescCreate(&operation_, compute(), scalar());
        if (auto error = detail::check("cublasLtMatmulDescCreate", status)) return error;
        for (auto& [name, value] : text_.operation) {
            auto known = detail::named(detail::kOperation, name);
            if (!known) return {"operation " + name + " is unknown to this gemmtune/cublaslt.hpp: take that of the exporter"};
            status = cublasLtMatmulDescSetAttribute(operation_, known->kind, &value, known->bytes);
            if (auto error = detail::check(known->name, status)) return error;
        }
        // The library asks whether there are scales, and reads none before a launch.
        if (text_.alignment.count("scale_a"))
            if (auto error = point_scales(1 << 20, 1 << 20)) return error;
        if (auto error = lay_out(text_.matrices["first"], first_)) return error;
        if (auto error = lay_out(text_.matrices["second"], second_)) return error;
        if (auto error = lay_out(text_.matrices["source"], source_)) return error;
        return lay_out(text_.matrices["output"], output_);
    }

    static Error lay_out(const detail::Matrix& matrix, cublasLtMatrixLayout_t& layout) {
        auto type = static_cast<cudaDataType_t>(matrix.type);
        auto status = cublasLtMatrixLayoutCreate(&layout, type, matrix.rows, matrix.columns, matrix.line);
        if (auto error = detail::check("cublasLtMatrixLayoutCreate", status)) return error;
        if (matrix.batch == 1) return {};
        auto set = [&](cublasLtMatrixLayoutAttribute_t kind, const auto& value) {
            return detail::check("cublasLtMatrixLayoutSetAttribute",
                                 cublasLtMatrixLayoutSetAttribute(layout, kind, &value, sizeof value));
        };
        if (auto error = set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, matrix.batch)) return error;
        return set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.apart);
    }

    // Makes the algorithm from its attributes and lets the library check it.
    Error rebuild() {
        auto type = [&](const char* name) { return static_cast<cudaDataType_t>(text_.matrices[name].type); };
        auto status = cublasLtMatmulAlgoInit(handle_, compute(), scalar(), type("first"), type("second"), type("source"),
                                             type("output"), static_cast<int>(text_.number("ID")), &algorithm_);
        if (auto error = detail::check("cublasLtMatmulAlgoInit", status)) return error;
        for (auto& [name, value] : text_.attributes) {
            auto known = detail::named(detail::kAttributes, name);
            if (!known) return {"attribute " + name + " is unknown to this gemmtune/cublaslt.hpp: take that of the exporter"};
            // An algorithm without an attribute refuses to be given it, even the only value that it has.
            int64_t usual = 0;
            size_t written = 0;
            cublasLtMatmulAlgoConfigGetAttribute(&algorithm_, known->kind, &usual, known->bytes, &written);
            if (std::memcmp(&usual, &value, known->bytes) == 0) continue;
            status = cublasLtMatmulAlgoConfigSetAttribute(&algorithm_, known->kind, &value, known->bytes);
            if (auto error = detail::check(known->name, status)) return error;
        }
        cublasLtMatmulHeuristicResult_t checked = {};
        status = cublasLtMatmulAlgoCheck(handle_, operation_, first_, second_, source_, output_, &algorithm_, &checked);
        if (status == CUBLAS_STATUS_SUCCESS) status = checked.state;
        if (auto error = detail::check("cublasLtMatmulAlgoCheck", status)) return error;
        workspace_bytes_ = checked.workspaceSize;
        if (workspace_bytes_ <= text_.workspace_bytes) return {};
        return {"the algorithm needs " + std::to_string(workspace_bytes_) + " bytes of workspace here, and " +
                std::to_string(text_.workspace_bytes) + " where it was measured: measure " + text_.problem + " again"};
    }

    // An operand's address must be a multiple of what the library says; where it says nothing, of what TMA and wide loads need.
    void align(const char* name, cublasLtMatmulAlgoCapAttributes_t kind) {
        uint32_t bytes = 0;
        size_t written = 0;
        auto status = cublasLtMatmulAlgoCapGetAttribute(&algorithm_, kind, &bytes, sizeof bytes, &written);
        bool said = status == CUBLAS_STATUS_SUCCESS && bytes;
        text_.alignment[name] = std::max<size_t>(text_.alignment[name], said ? bytes : 16);
    }

    Error point(cublasLtMatmulDescAttributes_t kind, CUdeviceptr address) {
        return detail::check("cublasLtMatmulDescSetAttribute",
                             cublasLtMatmulDescSetAttribute(operation_, kind, &address, sizeof address));
    }

    // The library's A is our B.
    Error point_scales(CUdeviceptr a, CUdeviceptr b) {
        if (auto error = point(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b)) return error;
        return point(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a);
    }
};

}  // namespace gemmtune
