// gemmtune.hpp: runs the kernels of a bundle (`gemmtune export --format bundle`) on the CUDA driver API alone.
//
// A plan is a launch as data: argument bytes, tensor-map boxes, and the places where addresses are written. This header
// patches plans; it knows nothing of configs and plans nothing itself. Errors are values. Needs C++17, and a CUDA context
// that is current in the calling thread.
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

#include "gemmtune/algorithm.hpp"
#include "gemmtune/error.hpp"
#include "gemmtune/files.hpp"
#include "gemmtune/operands.hpp"
#include "gemmtune/plan.hpp"

namespace gemmtune {

// A folder whose files are what its manifest says.
class Bundle {
public:
    // Checks every file, and that the current device is the one that was measured. A bundle that fails has no plans.
    Error load(const std::string& folder) {
        auto error = read(folder);
        if (error) clear();
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

    // The text of a problem's plan; nullptr if no kernel of ours runs it.
    const std::string* plan(const std::string& problem) const { return found(plans_, problem); }
    // The text of the cuBLASLt algorithm that was the fastest (see gemmtune/cublaslt.hpp); nullptr without one.
    const std::string* algorithm(const std::string& problem) const { return found(algorithms_, problem); }
    const std::string* program(const std::string& digest) const { return found(programs_, digest); }

private:
    std::map<std::string, std::string> plans_, algorithms_, programs_;
    std::string device_, multiprocessors_;

    void clear() { plans_.clear(), algorithms_.clear(), programs_.clear(); }

    Error read(const std::string& folder) {
        clear();
        std::string manifest;
        if (auto error = detail::read(folder, "manifest.json", manifest)) return error;
        if (detail::member(manifest, "schema") != "gemmtune.bundle/1") return {folder + " is no gemmtune.bundle/1"};
        device_ = detail::member(manifest, "device"), multiprocessors_ = detail::member(manifest, "multiprocessors");
        if (auto error = check_device()) return error;
        std::string files, algorithms;
        if (!listed(manifest, "files", files)) return {folder + "/manifest.json lists no files"};
        // A manifest that was edited by hand would run kernels on a card that did not measure them.
        std::string table;
        if (auto error = detail::read(folder, "table.json", table)) return error;
        if (files.find("\"table.json\":\"") == std::string::npos || detail::member(table, "device") != device_)
            return {folder + " has no table of " + device_ + ": export it again"};
        if (auto error = take(folder, "files", files, detail::member(manifest, "arch"))) return error;
        // Bundles from before there were algorithms list none.
        return listed(manifest, "algorithms", algorithms) ? take(folder, "algorithms", algorithms, {}) : Error{};
    }

    // Finds the text of an object in the manifest, without its braces.
    static bool listed(const std::string& manifest, const std::string& member, std::string& text) {
        auto at = manifest.find('"' + member + "\":{");
        auto end = manifest.find('}', at);
        if (at == std::string::npos || end == std::string::npos) return false;
        at += member.size() + 4;
        text = manifest.substr(at, end - at);
        return true;
    }

    Error take(const std::string& folder, const std::string& member, const std::string& listed, const std::string& arch) {
        for (size_t begin = 0; (begin = listed.find('"', begin)) != std::string::npos;) {
            auto close = listed.find("\":\"", begin);
            if (close == std::string::npos || listed.size() < close + 67) return {folder + "/manifest.json is malformed"};
            auto name = listed.substr(begin + 1, close - begin - 1);
            if (!detail::is_name(member, name)) return {folder + "/manifest.json lists " + name + ", which no bundle has"};
            if (auto error = take_file(folder, name, listed.substr(close + 3, 64), arch)) return error;
            begin = close + 68;
        }
        return {};
    }

    static const std::string* found(const std::map<std::string, std::string>& in, const std::string& name) {
        auto at = in.find(name);
        return at == in.end() ? nullptr : &at->second;
    }

    Error take_file(const std::string& folder, const std::string& name, const std::string& digest,
                    const std::string& arch) {
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
        if (name.rfind("algorithms/", 0) == 0) {
            auto algorithm = detail::AlgorithmText::of(content);
            if (!algorithm.complete) return {folder + "/" + name + " is no gemmtune.algorithm/1"};
            algorithms_[algorithm.problem] = content;
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
        if (auto error = arrays_.take(operands)) return error;
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
    detail::Arrays arrays_;
    detail::Place alpha_{}, beta_{};

    void release() {
        for (auto& scratch : plan_.scratch)
            if (scratch.address) cuMemFree(scratch.address);
        if (library_) cuLibraryUnload(library_);
        plan_ = {}, library_ = nullptr, arrays_ = {};
    }

    Error prepare(const Bundle& bundle, const std::string& problem) {
        auto text = bundle.plan(problem);
        if (!text && bundle.algorithm(problem))
            return {"the bundle has no kernel for " + problem + ", but the library's algorithm: load a gemmtune::Algorithm"};
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
            arrays_.all[arrays_.number_of(scratch.name)].address = scratch.address;
        }
        return detail::check("cuCtxSynchronize", cuCtxSynchronize());
    }

    // Finds everything that the plan names.
    void list_arrays() {
        arrays_ = detail::Arrays::of(plan_.problem, plan_.alignment);
        for (auto& scratch : plan_.scratch) arrays_.all.push_back({scratch.name, false, 1, scratch.bytes, 0});
        for (auto& place : plan_.places) {
            place.array = arrays_.number_of(place.name);
            // Scratch memory that another config would need: the kernel is told that there is none.
            if (place.array == arrays_.all.size()) arrays_.all.push_back({place.name, false, 1, 0, 0});
        }
        alpha_ = plan_.scalars["alpha"], beta_ = plan_.scalars["beta"];
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
        auto address = arrays_.all[place.array].address;
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
