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
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace gemmtune {

// An error; empty means success.
struct Error {
    std::string message;
    explicit operator bool() const { return !message.empty(); }
};

// Device addresses and scalars of one call. What the problem's epilogue doesn't have stays as it is here: no kernel would
// read it. Scales are f32: one for A and one for B (`scaled`), or one for each row of A and column of B (`scaled_rowwise`).
struct Operands {
    CUdeviceptr a = 0, b = 0, c = 0, source = 0, bias = 0;
    float alpha = 1.0f, beta = 0.0f;
    CUdeviceptr scale_a = 0, scale_b = 0;
};

namespace detail {

inline Error check(const char* call, CUresult result) {
    if (result == CUDA_SUCCESS) return {};
    const char* name = nullptr;
    cuGetErrorName(result, &name);
    return {std::string(call) + ": " + (name ? name : "unknown error")};
}

// FIPS 180-4.
inline std::string sha256(const std::string& text) {
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98,
        0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
        0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8,
        0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
        0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819,
        0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
        0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::string data = text;
    data.push_back(static_cast<char>(0x80));
    while (data.size() % 64 != 56) data.push_back(0);
    for (int shift = 56; shift >= 0; shift -= 8) data.push_back(static_cast<char>((uint64_t(text.size()) * 8) >> shift));
    auto turned = [](uint32_t x, int by) { return (x >> by) | (x << (32 - by)); };
    for (size_t at = 0; at < data.size(); at += 64) {
        uint32_t w[64];
        for (size_t i = 0; i < 16; ++i) {
            w[i] = 0;
            for (size_t byte = 0; byte < 4; ++byte) w[i] = w[i] << 8 | static_cast<uint8_t>(data[at + 4 * i + byte]);
        }
        for (int i = 16; i < 64; ++i) {
            uint32_t s0 = turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ (w[i - 15] >> 3);
            uint32_t s1 = turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ (w[i - 2] >> 10);
            w[i] = w[i - 16] + s0 + w[i - 7] + s1;
        }
        std::array<uint32_t, 8> v;
        std::memcpy(v.data(), h, sizeof h);
        for (int i = 0; i < 64; ++i) {
            uint32_t s1 = turned(v[4], 6) ^ turned(v[4], 11) ^ turned(v[4], 25);
            uint32_t first = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
            uint32_t s0 = turned(v[0], 2) ^ turned(v[0], 13) ^ turned(v[0], 22);
            uint32_t second = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
            v = {first + second, v[0], v[1], v[2], v[3] + first, v[4], v[5], v[6]};
        }
        for (size_t i = 0; i < 8; ++i) h[i] += v[i];
    }
    std::string hex;
    for (uint32_t word : h)
        for (int shift = 28; shift >= 0; shift -= 4) hex.push_back("0123456789abcdef"[word >> shift & 15]);
    return hex;
}

// The only names that a manifest may list: table.json, cubins/DIGEST.cubin, plans/NAME.plan.
inline bool is_name(const std::string& name) {
    auto holds = [&](const std::string& folder, size_t digits, const std::string& suffix) {
        return name.size() == folder.size() + digits + suffix.size() && name.compare(0, folder.size(), folder) == 0 &&
               name.find_first_not_of("0123456789abcdef", folder.size()) == folder.size() + digits &&
               name.compare(folder.size() + digits, suffix.size(), suffix) == 0;
    };
    return name == "table.json" || holds("cubins/", 64, ".cubin") || holds("plans/", 32, ".plan");
}

// No file of a bundle has more.
constexpr uintmax_t kMostBytes = uintmax_t(1) << 30;

// The content of a bundle's file, which is no link, pipe or device.
inline Error read(const std::string& folder, const std::string& name, std::string& content) {
    namespace fs = std::filesystem;
    auto path = fs::path(folder) / name;
    std::error_code none;
    if (fs::is_symlink(path, none) || (name.find('/') != std::string::npos && fs::is_symlink(path.parent_path(), none)))
        return {path.string() + " is a link: a bundle has files of its own"};
    if (fs::is_regular_file(path, none) && fs::file_size(path, none) <= kMostBytes) {
        std::ifstream file(path, std::ios::binary);
        std::ostringstream all;
        all << file.rdbuf();
        content = all.str();
        if (file) return {};
    }
    return {path.string() + " can't be read: copy the whole bundle"};
}

// Whether bytes are a program for an arch, as in sm_90a: a 64-bit ELF executable for machine 190, whose flags have the SM
// number.
inline bool is_program(const std::string& bytes, const std::string& arch) {
    auto number = arch.substr(0, arch.find_last_of("0123456789") + 1);
    return bytes.size() >= 64 && bytes.compare(0, 7, "\x7f" "ELF\2\1\1") == 0 && bytes.compare(16, 4, "\2\0\xbe\0", 4) == 0 &&
           number == "sm_" + std::to_string(static_cast<unsigned char>(bytes[49]));
}

// The text of a member of our canonical JSON: `"name":"text"`.
inline std::string member(const std::string& json, const std::string& name) {
    auto at = json.find('"' + name + "\":");
    if (at == std::string::npos) return {};
    at += name.size() + 3;
    bool quoted = json[at] == '"';
    auto end = json.find_first_of(quoted ? "\"" : ",}", at + quoted);
    return end == std::string::npos ? std::string() : json.substr(at + quoted, end - at - quoted);
}

struct Box {
    uint32_t element_bytes, box_columns, box_lines, swizzle, promotion;
    uint64_t columns, lines, batch, pitch, batch_pitch;
};

struct Place {
    std::string name;
    size_t pass, value, offset;
    bool is_map;
    Box box;
};

struct alignas(64) Map {
    unsigned char bytes[128];
};

struct Value {
    std::vector<unsigned char> bytes;
    std::unique_ptr<Map> map;  // descriptors must be aligned to 64 bytes
    void* address() { return map ? static_cast<void*>(map.get()) : bytes.data(); }
};

struct Pass {
    std::string entry;
    unsigned threads, shared_memory_bytes, cluster, blocks;
    bool pdl, together;
    unsigned most = 0;  // clusters that have work, of a pass that launches as many as the device holds
    std::vector<Value> values;
    CUfunction function = nullptr;
};

struct Scratch {
    std::string name;
    size_t bytes;
    bool zeroed;
    CUdeviceptr address = 0;
};

struct Plan {
    std::string problem, cubin;
    int multiprocessors = 0;
    std::vector<Scratch> scratch;
    std::map<std::string, size_t> alignment;
    std::vector<Pass> passes;
    std::vector<Place> places;
    std::map<std::string, Place> scalars;
    bool complete = false;

    // Reads lines of `gemmtune.plan/1`; incomplete if one has another form.
    static Plan of(const std::string& text) {
        Plan plan;
        std::istringstream lines(text);
        std::string line;
        if (!std::getline(lines, line) || line != "gemmtune.plan/1") return plan;
        while (std::getline(lines, line)) {
            std::istringstream fields(line);
            std::string word;
            fields >> word;
            if (word == "end") {
                plan.complete = plan.scalars.count("alpha") && plan.scalars.count("beta");
                return plan;
            }
            if (!plan.take(word, fields) || fields.fail()) return plan;
        }
        return plan;
    }

private:
    bool take(const std::string& word, std::istringstream& fields) {
        if (word == "problem") return static_cast<bool>(fields >> problem);
        if (word == "cubin") return static_cast<bool>(fields >> cubin);
        if (word == "multiprocessors") return static_cast<bool>(fields >> multiprocessors);
        if (word == "scratch") {
            scratch.push_back({});
            auto& last = scratch.back();
            return static_cast<bool>(fields >> last.name >> last.bytes >> last.zeroed);
        }
        if (word == "align") {
            std::string name;
            size_t bytes = 0;
            fields >> name >> bytes;
            alignment[name] = bytes;
            return bytes > 0;
        }
        if (word == "pass") {
            passes.emplace_back();
            auto& p = passes.back();
            return static_cast<bool>(fields >> p.entry >> p.threads >> p.shared_memory_bytes >> p.cluster >> p.blocks >>
                                     p.pdl >> p.together);
        }
        if (word == "most") return !passes.empty() && fields >> passes.back().most;
        if (word == "value") return take_value(fields);
        if (word == "map" || word == "word" || word == "scalar") return take_place(word, fields);
        return false;
    }

    bool take_value(std::istringstream& fields) {
        std::string hex;
        fields >> hex;
        if (passes.empty() || hex.size() % 2 || hex.find_first_not_of("0123456789abcdef") != std::string::npos) return false;
        Value value;
        for (size_t at = 0; at < hex.size(); at += 2)
            value.bytes.push_back(static_cast<unsigned char>(std::stoul(hex.substr(at, 2), nullptr, 16)));
        passes.back().values.push_back(std::move(value));
        return true;
    }

    bool take_place(const std::string& word, std::istringstream& fields) {
        Place place{};
        fields >> place.name >> place.pass >> place.value;
        if (fields.fail() || place.pass >= passes.size() || place.value >= passes[place.pass].values.size()) return false;
        auto& value = passes[place.pass].values[place.value];
        place.is_map = word == "map";
        if (place.is_map) {
            auto& b = place.box;
            fields >> b.element_bytes >> b.columns >> b.lines >> b.batch >> b.pitch >> b.batch_pitch >> b.box_columns >>
                b.box_lines >> b.swizzle >> b.promotion;
            if (value.bytes.size() != sizeof(Map)) return false;
            value.map = std::make_unique<Map>();
            std::memset(value.map.get(), 0, sizeof(Map));
        } else {
            size_t bytes = word == "scalar" ? 4 : 8;
            fields >> place.offset;
            if (bytes > value.bytes.size() || place.offset > value.bytes.size() - bytes) return false;
        }
        if (word == "scalar")
            scalars[place.name] = place;
        else
            places.push_back(place);
        return true;
    }
};

inline Error encode(const Box& box, CUdeviceptr address, void* map) {
    auto type = box.element_bytes == 1   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                : box.element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16
                                         : CU_TENSOR_MAP_DATA_TYPE_UINT32;
    auto swizzle = box.swizzle == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                   : box.swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                   : box.swizzle == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                       : CU_TENSOR_MAP_SWIZZLE_NONE;
    auto promotion = box.promotion == 256   ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B
                     : box.promotion == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
                     : box.promotion == 64  ? CU_TENSOR_MAP_L2_PROMOTION_L2_64B
                                            : CU_TENSOR_MAP_L2_PROMOTION_NONE;
    cuuint64_t extents[3] = {box.columns, box.lines, box.batch}, strides[2] = {box.pitch, box.batch_pitch};
    cuuint32_t boxes[3] = {box.box_columns, box.box_lines, 1}, steps[3] = {1, 1, 1};
    return check("cuTensorMapEncodeTiled",
                 cuTensorMapEncodeTiled(static_cast<CUtensorMap*>(map), type, 3, reinterpret_cast<void*>(address), extents,
                                        strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion,
                                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

}  // namespace detail

// A folder whose files are what its manifest says.
class Bundle {
public:
    // Checks every file, and that the current device is the one that was measured. A bundle that fails has no plans.
    Error load(const std::string& folder) {
        auto error = read(folder);
        if (error) plans_.clear(), programs_.clear();
        return error;
    }

    // The text of a problem's plan; nullptr if the bundle leaves the problem to the library.
    const std::string* plan(const std::string& problem) const { return found(plans_, problem); }
    const std::string* program(const std::string& digest) const { return found(programs_, digest); }

private:
    std::map<std::string, std::string> plans_, programs_;

    Error read(const std::string& folder) {
        plans_.clear(), programs_.clear();
        std::string manifest;
        if (auto error = detail::read(folder, "manifest.json", manifest)) return error;
        if (detail::member(manifest, "schema") != "gemmtune.bundle/1") return {folder + " is no gemmtune.bundle/1"};
        if (auto error = check_device(manifest)) return error;
        auto at = manifest.find("\"files\":{");
        auto end = manifest.find('}', at);
        if (at == std::string::npos || end == std::string::npos) return {folder + "/manifest.json lists no files"};
        auto listed = manifest.substr(at + 9, end - at - 9);
        auto device = detail::member(manifest, "device");
        // A manifest that was edited by hand would run kernels on a card that did not measure them.
        std::string table;
        if (auto error = detail::read(folder, "table.json", table)) return error;
        if (listed.find("\"table.json\":\"") == std::string::npos || detail::member(table, "device") != device)
            return {folder + " has no table of " + device + ": export it again"};
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

    static Error check_device(const std::string& manifest) {
        CUdevice device;
        char name[256] = {};
        int multiprocessors = 0;
        if (auto error = detail::check("cuCtxGetDevice", cuCtxGetDevice(&device))) return error;
        if (auto error = detail::check("cuDeviceGetName", cuDeviceGetName(name, sizeof name, device))) return error;
        auto attribute = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        if (auto error = detail::check("cuDeviceGetAttribute", cuDeviceGetAttribute(&multiprocessors, attribute, device)))
            return error;
        auto model = detail::member(manifest, "device");
        auto count = detail::member(manifest, "multiprocessors");
        // An identity may add multiprocessors or watts to the driver's name.
        if (model.substr(0, model.find(" (")) != name || count != std::to_string(multiprocessors))
            return {"the bundle is of " + model + " with " + count + " multiprocessors, this is " + name + " with " +
                    std::to_string(multiprocessors)};
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
        at_["a"] = operands.a, at_["b"] = operands.b, at_["c"] = operands.c;
        at_["source"] = operands.source, at_["bias"] = operands.bias;
        at_["scale_a"] = operands.scale_a, at_["scale_b"] = operands.scale_b;
        for (auto& name : needed_)
            if (!at_[name]) return {name + " is 0: " + plan_.problem + " reads or writes it on the device"};
        for (auto& [name, bytes] : plan_.alignment)
            if (at_[name] % bytes)
                return {name + " is not aligned to the " + std::to_string(bytes) + " bytes that the kernel reads or writes"};
        if (operands.c == operands.a || operands.c == operands.b)
            return {"c shares memory with a or b: kernels write C while they read; give c its own"};
        // Kernels are compiled for an epilogue: what it lacks would be left out without a word.
        for (auto name : {"source", "bias", "scale_a", "scale_b"})
            if (at_[name] && std::find(needed_.begin(), needed_.end(), name) == needed_.end()) return unread(name);
        if (operands.alpha != 1.0f && !has("alpha")) return unread("alpha");
        if (operands.beta != 0.0f && !has("beta")) return unread("beta");
        for (auto& place : plan_.places)
            if (auto error = write(place)) return error;
        write(plan_.scalars["alpha"], operands.alpha);
        write(plan_.scalars["beta"], operands.beta);
        for (auto& pass : plan_.passes)
            if (auto error = enqueue(stream, pass)) return error;
        return {};
    }

private:
    detail::Plan plan_;
    CUlibrary library_ = nullptr;
    std::map<std::string, CUdeviceptr> at_;
    std::vector<std::string> needed_;  // operands whose address must not be 0

    // Whether the problem's epilogue has a part; its key ends in them, joined by `+`.
    bool has(const std::string& part) const {
        auto parts = "+" + plan_.problem.substr(plan_.problem.rfind(':') + 1) + "+";
        return parts.find("+" + part + "+") != std::string::npos;
    }

    Error unread(const std::string& name) const {
        return {name + " is given, but " + plan_.problem + " has none: load a problem whose epilogue has it"};
    }

    void release() {
        for (auto& scratch : plan_.scratch)
            if (scratch.address) cuMemFree(scratch.address);
        if (library_) cuLibraryUnload(library_);
        plan_ = {}, library_ = nullptr;
        at_.clear(), needed_.clear();
    }

    Error prepare(const Bundle& bundle, const std::string& problem) {
        auto text = bundle.plan(problem);
        if (!text) return {"the bundle has no kernel for " + problem + ": the library is to be kept"};
        plan_ = detail::Plan::of(*text);
        needed_ = {"a", "b", "c"};
        if (has("bias")) needed_.push_back("bias");
        if (has("beta")) needed_.push_back("source");
        for (auto& place : plan_.places)
            if (place.name.rfind("scale_", 0) == 0) needed_.push_back(place.name);
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
            at_[scratch.name] = scratch.address;
        }
        return detail::check("cuCtxSynchronize", cuCtxSynchronize());
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
        auto address = at_[place.name];
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
