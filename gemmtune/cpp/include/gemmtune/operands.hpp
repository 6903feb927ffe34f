// What a call reads and writes on the device, and which addresses and scalars it refuses.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "gemmtune/error.hpp"

namespace gemmtune {

// Device addresses and scalars of one call. What the problem's epilogue doesn't have stays as it is here: no kernel would
// read it. Scales are f32: one for A and one for B (`scaled`), or one for each row of A and column of B (`scaled_rowwise`).
struct Operands {
    CUdeviceptr a = 0, b = 0, c = 0, source = 0, bias = 0;
    float alpha = 1.0f, beta = 0.0f;
    CUdeviceptr scale_a = 0, scale_b = 0;
};

namespace detail {

// Bytes of each operand by a problem's key, gemm:A,B,C,ACC:LAYOUT:MxNxK:bBATCH:EPILOGUE; empty for a key of another form.
inline std::map<std::string, uint64_t> sizes_of(const std::string& problem) {
    char a[16], b[16], c[16];
    unsigned long long m, n, k, batch;
    auto form = "gemm:%15[^,],%15[^,],%15[^,],%*[^:]:%*[^:]:%llux%llux%llu:b%llu:";
    if (std::sscanf(problem.c_str(), form, a, b, c, &m, &n, &k, &batch) != 7) return {};
    auto bytes = [](const std::string& dtype) -> uint64_t {
        return dtype.find("16") != std::string::npos ? 2 : dtype.find('8') != std::string::npos ? 1 : 4;
    };
    bool each = problem.find("scaled_rowwise") != std::string::npos;
    return {{"a", m * k * batch * bytes(a)}, {"b", k * n * batch * bytes(b)}, {"c", m * n * batch * bytes(c)},
            {"source", m * n * batch * bytes(c)}, {"bias", n * (bytes(c) == 2 ? 2 : 4)},
            {"scale_a", each ? m * 4 : 4}, {"scale_b", each ? n * 4 : 4}};
}

// Whether the epilogue of a problem has a part; its key ends in them, joined by `+`.
inline bool has(const std::string& problem, const std::string& part) {
    auto parts = "+" + problem.substr(problem.rfind(':') + 1) + "+";
    return parts.find("+" + part + "+") != std::string::npos;
}

// What a kernel reads or writes on the device.
struct Array {
    std::string name;
    bool needed = false;  // of an operand: whether its address must not be 0
    size_t alignment = 1;
    uint64_t bytes = 0;
    CUdeviceptr address = 0;
};

// The operands in the order of `Operands`, then what a kernel has beside them. Nothing is looked up by name at a launch.
struct Arrays {
    static constexpr size_t kC = 2, kSource = 3, kOperands = 7;
    std::string problem;
    std::vector<Array> all;
    bool has_alpha = false, has_beta = false;

    // The operands of a problem, named by its key, and what their addresses are multiples of.
    static Arrays of(const std::string& problem, const std::map<std::string, size_t>& alignment) {
        auto sizes = sizes_of(problem);
        Arrays arrays{problem, {}, has(problem, "alpha"), has(problem, "beta")};
        bool scaled = has(problem, "scaled") || has(problem, "scaled_rowwise");
        const bool needed[] = {true, true, true, arrays.has_beta, has(problem, "bias"), scaled, scaled};
        for (auto name : {"a", "b", "c", "source", "bias", "scale_a", "scale_b"}) {
            auto at = alignment.find(name);
            auto multiple = at == alignment.end() ? 1 : std::max<size_t>(at->second, 1);
            arrays.all.push_back({name, needed[arrays.all.size()], multiple, sizes[name], 0});
        }
        return arrays;
    }

    size_t number_of(const std::string& name) const {
        size_t number = 0;
        while (number < all.size() && all[number].name != name) ++number;
        return number;
    }

    // Takes the addresses of a call. Kernels and algorithms are for one epilogue: what it lacks would be left out silently.
    Error take(const Operands& operands) {
        const CUdeviceptr given[] = {operands.a,    operands.b,       operands.c,      operands.source,
                                     operands.bias, operands.scale_a, operands.scale_b};
        for (size_t number = 0; number < kOperands; ++number) all[number].address = given[number];
        for (auto& array : all)
            if (array.needed && !array.address)
                return {array.name + " is 0: " + problem + " reads or writes it on the device"};
        for (auto& array : all)
            if (array.address % array.alignment)
                return {array.name + " is not aligned to the " + std::to_string(array.alignment) +
                        " bytes that the kernel reads or writes"};
        for (size_t number = 0; number < kOperands; ++number)
            if (all[number].needed && number != kC && shares_memory(number))
                return {"c shares memory with " + all[number].name +
                        ": kernels write C while they read; give c its own"};
        for (size_t number = 0; number < kOperands; ++number)
            if (all[number].address && !all[number].needed) return unread(all[number].name);
        if (operands.alpha != 1.0f && !has_alpha) return unread("alpha");
        if (operands.beta != 0.0f && !has_beta) return unread("beta");
        return {};
    }

private:
    // Whether an operand lies where C does. The source may be C itself: who writes an element of C has read its source.
    bool shares_memory(size_t number) const {
        auto &c = all[kC], &other = all[number];
        if (number == kSource && other.address == c.address) return false;
        auto one = c.address, two = other.address;
        return one == two || (one < two ? two - one < c.bytes : one - two < other.bytes);
    }

    Error unread(const std::string& name) const {
        return {name + " is given, but " + problem + " has none: load a problem whose epilogue has it"};
    }
};

}  // namespace detail

}  // namespace gemmtune
