// gemmtune.hpp: runs the kernels of a bundle (`gemmtune export --format bundle`) on the CUDA driver API alone.
//
// A plan is a launch as data: argument bytes, tensor-map boxes, and the places where addresses are written. This header
// patches plans; it knows nothing of configs and plans nothing itself. Errors are values. Needs C++17.
//
//     gemmtune::Bundle bundle;
//     if (auto error = bundle.load("bundle")) return fail(error.message);
//     gemmtune::Kernel kernel;  // one for each stream: calls share its scratch memory
//     if (auto error = kernel.load(bundle, "gemm:bf16,bf16,bf16,f32:nt:4096x4096x4096:b1:none")) return fail(error.message);
//     if (auto error = kernel.launch(stream, {a, b, c})) return fail(error.message);
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "gemmtune/error.hpp"
#include "gemmtune/files.hpp"
#include "gemmtune/plan.hpp"

namespace gemmtune {

// Device addresses and scalars of one call. What the problem's epilogue doesn't have stays as it is here: no kernel would
// read it. Scales are f32: one for A and one for B (`scaled`), or one for each row of A and column of B (`scaled_rowwise`).
struct Operands {
    CUdeviceptr a = 0, b = 0, c = 0, source = 0, bias = 0;
    float alpha = 1.0f, beta = 0.0f;
    CUdeviceptr scale_a = 0, scale_b = 0;
};

// A folder whose files are what its manifest says.
class Bundle {
public:
    // Checks every file, and that the current device is the one that was measured. A bundle that fails has no plans.
    Error load(const std::string& folder) {
        auto error = read(folder);
        if (error) plans_.clear(), programs_.clear();
        return error;
    }

    // Whether the current device is the one that was measured.
    Error check_device() const {
        CUdevice device;
        char name[256] = {};
        int multiprocessors = 0;
        if (auto error = detail::check("cuCtxGetDevice", cuCtxGetDevice(&device))) return error;
        if (auto error = detail::check("cuDeviceGetName", cuDeviceGetName(name, sizeof name, device))) return error;
        auto attribute = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        if (auto error = detail::check("cuDeviceGetAttribute", cuDeviceGetAttribute(&multiprocessors, attribute, device)))
            return error;
        std::string here = name;
        // An identity may add multiprocessors or watts to the driver's name, and lacks a MIG slice's extras, as in +me.
        if (device_.substr(0, device_.find(" (")) != here.substr(0, here.find('+', here.find(" MIG "))) ||
            multiprocessors_ != std::to_string(multiprocessors))
            return {"the bundle is of " + device_ + " with " + multiprocessors_ + " multiprocessors, this is " + here +
                    " with " + std::to_string(multiprocessors)};
        return {};
    }

    // The text of a problem's plan; nullptr if the bundle leaves the problem to the library.
    const std::string* plan(const std::string& problem) const { return found(plans_, problem); }
    const std::string* program(const std::string& digest) const { return found(programs_, digest); }

private:
    std::map<std::string, std::string> plans_, programs_;
    std::string device_, multiprocessors_;

    Error read(const std::string& folder) {
        plans_.clear(), programs_.clear();
        std::string manifest;
        if (auto error = detail::read(folder, "manifest.json", manifest)) return error;
        if (detail::member(manifest, "schema") != "gemmtune.bundle/1") return {folder + " is no gemmtune.bundle/1"};
        device_ = detail::member(manifest, "device"), multiprocessors_ = detail::member(manifest, "multiprocessors");
        if (auto error = check_device()) return error;
        auto at = manifest.find("\"files\":{");
        auto end = manifest.find('}', at);
        if (at == std::string::npos || end == std::string::npos) return {folder + "/manifest.json lists no files"};
        auto listed = manifest.substr(at + 9, end - at - 9);
        // A manifest that was edited by hand would run kernels on a card that did not measure them.
        std::string table;
        if (auto error = detail::read(folder, "table.json", table)) return error;
        if (listed.find("\"table.json\":\"") == std::string::npos || detail::member(table, "device") != device_)
            return {folder + " has no table of " + device_ + ": export it again"};
        for (size_t begin = 0; (begin = listed.find('"', begin)) != std::string::npos;) {
            auto close = listed.find("\":\"", begin);
            if (close == std::string::npos || listed.size() < close + 67) return {folder + "/manifest.json is malformed"};
            auto name = listed.substr(begin + 1, close - begin - 1);
            if (auto error = take(folder, name, listed.substr(close + 3, 64), detail::member(manifest, "arch"))) return error;
            begin = close + 68;
        }
        return {};
    }

    static const std::string* found(const std::map<std::string, std::string>& in, const std::string& name) {
        auto at = in.find(name);
        return at == in.end() ? nullptr : &at->second;
    }

    Error take(const std::string& folder, const std::string& name, const std::string& digest, const std::string& arch) {
        if (!detail::is_name(name)) return {folder + "/manifest.json lists " + name + ", which no bundle has"};
        std::string content;
        if (auto error = detail::read(folder, name, content)) return error;
        if (detail::sha256(content) != digest) return {folder + "/" + name + " was changed: copy the bundle again"};
        if (name.rfind("cubins/", 0) == 0) {
            if (!detail::is_program(content, arch)) return {folder + "/" + name + " is no program for " + arch};
            programs_[name.substr(7, 64)] = content;
        }
        if (name.rfind("plans/", 0) == 0) {
            auto plan = detail::Plan::of(content);
            if (!plan.complete) return {folder + "/" + name + " is no gemmtune.plan/1"};
            plans_[plan.problem] = content;
        }
        return {};
    }
};

// One problem's kernel on the current device, for one stream.
class Kernel {
public:
    Kernel() = default;
    Kernel(const Kernel&) = delete;
    Kernel& operator=(const Kernel&) = delete;
    ~Kernel() { release(); }

    // Loads the program of a problem, named by its key, and allocates its scratch memory. Replaces what was loaded.
    Error load(const Bundle& bundle, const std::string& problem) {
        release();
        auto error = prepare(bundle, problem);
        if (error) release();
        return error;
    }

    // Enqueues the product; the arguments are copied before it returns.
    Error launch(CUstream stream, const Operands& operands) {
        if (!plan_.complete) return {"no kernel is loaded: load() first, and see what it returns"};
        const CUdeviceptr given[] = {operands.a,    operands.b,       operands.c,      operands.source,
                                     operands.bias, operands.scale_a, operands.scale_b};
        for (size_t number = 0; number < kOperands; ++number) arrays_[number].address = given[number];
        for (auto& array : arrays_)
            if (array.needed && !array.address)
                return {array.name + " is 0: " + plan_.problem + " reads or writes it on the device"};
        for (auto& array : arrays_)
            if (array.address % array.alignment)
                return {array.name + " is not aligned to the " + std::to_string(array.alignment) +
                        " bytes that the kernel reads or writes"};
        for (size_t number = 0; number < kOperands; ++number)
            if (arrays_[number].needed && number != kC && shares_memory(number))
                return {"c shares memory with " + arrays_[number].name +
                        ": kernels write C while they read; give c its own"};
        // Kernels are compiled for an epilogue: what it lacks would be left out without a word.
        for (size_t number = 0; number < kOperands; ++number)
            if (arrays_[number].address && !arrays_[number].needed) return unread(arrays_[number].name);
        if (operands.alpha != 1.0f && !has_alpha_) return unread("alpha");
        if (operands.beta != 0.0f && !has_beta_) return unread("beta");
        for (auto& place : plan_.places)
            if (auto error = write(place)) return error;
        write(alpha_, operands.alpha);
        write(beta_, operands.beta);
        for (auto& pass : plan_.passes)
            if (auto error = enqueue(stream, pass)) return error;
        return {};
    }

private:
    detail::Plan plan_;
    CUlibrary library_ = nullptr;
    // What a kernel reads or writes on the device.
    struct Array {
        std::string name;
        bool needed = false;  // of an operand: whether its address must not be 0
        size_t alignment = 1;
        uint64_t bytes = 0;
        CUdeviceptr address = 0;
    };
    // The operands in the order of `launch`, then scratch memory. Nothing is looked up by name at a launch.
    std::vector<Array> arrays_;
    static constexpr size_t kC = 2, kSource = 3, kOperands = 7;
    bool has_alpha_ = false, has_beta_ = false;
    detail::Place alpha_{}, beta_{};

    // Whether the problem's epilogue has a part; its key ends in them, joined by `+`.
    bool has(const std::string& part) const {
        auto parts = "+" + plan_.problem.substr(plan_.problem.rfind(':') + 1) + "+";
        return parts.find("+" + part + "+") != std::string::npos;
    }

    // Whether an operand lies where C does. The source may be C itself: who writes an element of C has read its source.
    bool shares_memory(size_t number) const {
        auto &c = arrays_[kC], &other = arrays_[number];
        if (number == kSource && other.address == c.address) return false;
        auto one = c.address, two = other.address;
        return one == two || (one < two ? two - one < c.bytes : one - two < other.bytes);
    }

    Error unread(const std::string& name) const {
        return {name + " is given, but " + plan_.problem + " has none: load a problem whose epilogue has it"};
    }

    void release() {
        for (auto& scratch : plan_.scratch)
            if (scratch.address) cuMemFree(scratch.address);
        if (library_) cuLibraryUnload(library_);
        plan_ = {}, library_ = nullptr;
        arrays_.clear();
    }

    Error prepare(const Bundle& bundle, const std::string& problem) {
        auto text = bundle.plan(problem);
        if (!text) return {"the bundle has no kernel for " + problem + ": the library is to be kept"};
        // Another device may be current than when the bundle was loaded.
        if (auto error = bundle.check_device()) return error;
        plan_ = detail::Plan::of(*text);
        list_arrays();
        auto cubin = bundle.program(plan_.cubin);
        if (!cubin) return {"the bundle lacks program " + plan_.cubin};
        if (auto error = detail::check("cuLibraryLoadData", cuLibraryLoadData(&library_, cubin->data(), nullptr, nullptr, 0,
                                                                              nullptr, nullptr, 0)))
            return error;
        for (auto& pass : plan_.passes)
            if (auto error = prepare(pass)) return error;
        for (auto& scratch : plan_.scratch) {
            if (auto error = detail::check("cuMemAlloc", cuMemAlloc(&scratch.address, scratch.bytes))) return error;
            if (scratch.zeroed)
                if (auto error = detail::check("cuMemsetD8", cuMemsetD8(scratch.address, 0, scratch.bytes))) return error;
            arrays_[number_of(scratch.name)].address = scratch.address;
        }
        return detail::check("cuCtxSynchronize", cuCtxSynchronize());
    }

    // Finds everything that the plan names.
    void list_arrays() {
        auto sizes = detail::sizes_of(plan_.problem);
        for (auto name : {"a", "b", "c", "source", "bias", "scale_a", "scale_b"})
            arrays_.push_back({name, false, std::max<size_t>(plan_.alignment[name], 1), sizes[name], 0});
        for (auto& scratch : plan_.scratch) arrays_.push_back({scratch.name, false, 1, scratch.bytes, 0});
        for (auto& place : plan_.places) {
            place.array = number_of(place.name);
            // Scratch memory that another config would need: the kernel is told that there is none.
            if (place.array == arrays_.size()) arrays_.push_back({place.name, false, 1, 0, 0});
            if (place.name.rfind("scale_", 0) == 0) arrays_[place.array].needed = true;
        }
        for (size_t number = 0; number <= kC; ++number) arrays_[number].needed = true;
        arrays_[kSource].needed = has_beta_ = has("beta"), arrays_[number_of("bias")].needed = has("bias");
        has_alpha_ = has("alpha"), alpha_ = plan_.scalars["alpha"], beta_ = plan_.scalars["beta"];
    }

    size_t number_of(const std::string& name) const {
        size_t number = 0;
        while (number < arrays_.size() && arrays_[number].name != name) ++number;
        return number;
    }

    Error prepare(detail::Pass& pass) {
        CUkernel kernel;
        if (auto error = detail::check("cuLibraryGetKernel", cuLibraryGetKernel(&kernel, library_, pass.entry.c_str())))
            return error;
        if (auto error = detail::check("cuKernelGetFunction", cuKernelGetFunction(&pass.function, kernel))) return error;
        if (pass.shared_memory_bytes) {
            auto attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            auto bytes = static_cast<int>(pass.shared_memory_bytes);
            if (auto error = detail::check("cuFuncSetAttribute", cuFuncSetAttribute(pass.function, attribute, bytes)))
                return error;
        }
        if (pass.cluster > 8) {
            auto attribute = CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
            if (auto error = detail::check("cuFuncSetAttribute", cuFuncSetAttribute(pass.function, attribute, 1)))
                return error;
        }
        return pass.most ? fill(pass) : Error{};
    }

    // Sizes the grid of a pass to as many clusters as the device holds at once.
    Error fill(detail::Pass& pass) {
        int held = 0;
        if (pass.cluster > 1) {
            CUlaunchAttribute attributes[3];
            auto config = configured(pass, attributes);
            if (auto error = detail::check("cuOccupancyMaxActiveClusters",
                                           cuOccupancyMaxActiveClusters(&held, pass.function, &config)))
                return error;
        } else {
            if (auto error = detail::check("cuOccupancyMaxActiveBlocksPerMultiprocessor",
                                           cuOccupancyMaxActiveBlocksPerMultiprocessor(
                                               &held, pass.function, static_cast<int>(pass.threads), pass.shared_memory_bytes)))
                return error;
            held *= plan_.multiprocessors;
        }
        pass.blocks = std::max(1u, std::min(pass.most, static_cast<unsigned>(held))) * pass.cluster;
        return {};
    }

    Error write(const detail::Place& place) {
        auto& value = plan_.passes[place.pass].values[place.value];
        auto address = arrays_[place.array].address;
        if (place.is_map) return detail::encode(place.box, address, value.map.get());
        std::memcpy(value.bytes.data() + place.offset, &address, sizeof address);
        return {};
    }

    void write(const detail::Place& place, float scalar) {
        std::memcpy(plan_.passes[place.pass].values[place.value].bytes.data() + place.offset, &scalar, sizeof scalar);
    }

    static Error enqueue(CUstream stream, detail::Pass& pass) {
        CUlaunchAttribute attributes[3];
        auto config = configured(pass, attributes);
        config.hStream = stream;
        std::vector<void*> arguments;
        for (auto& value : pass.values) arguments.push_back(value.address());
        return detail::check("cuLaunchKernelEx", cuLaunchKernelEx(&config, pass.function, arguments.data(), nullptr));
    }

    static CUlaunchConfig configured(const detail::Pass& pass, CUlaunchAttribute (&attributes)[3]) {
        std::memset(attributes, 0, sizeof attributes);
        unsigned count = 0;
        if (pass.cluster > 1) {
            attributes[count].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
            attributes[count].value.clusterDim.x = pass.cluster;
            attributes[count].value.clusterDim.y = attributes[count].value.clusterDim.z = 1;
            ++count;
        }
        if (pass.pdl) {
            attributes[count].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
            attributes[count++].value.programmaticStreamSerializationAllowed = 1;
        }
        if (pass.together) {
            attributes[count].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
            attributes[count++].value.cooperative = 1;
        }
        CUlaunchConfig config = {};
        config.gridDimX = pass.blocks, config.gridDimY = config.gridDimZ = 1;
        config.blockDimX = pass.threads, config.blockDimY = config.blockDimZ = 1;
        config.sharedMemBytes = pass.shared_memory_bytes;
        config.attrs = count ? attributes : nullptr;
        config.numAttrs = count;
        return config;
    }
};

}  // namespace gemmtune
