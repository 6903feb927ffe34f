// A launch as data, as plans/NAME.plan has it, and the tensor maps that it asks for.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gemmtune/error.hpp"
#include "gemmtune/files.hpp"

namespace gemmtune::detail {

struct Box {
    uint32_t element_bytes, box_columns, box_lines, swizzle, promotion;
    uint64_t columns, lines, batch, pitch, batch_pitch;
};

struct Place {
    std::string name;
    size_t array;  // number of `name` among the kernel's arrays, of a place where an address is written
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
        auto read = read_lines(text, "gemmtune.plan/1", [&](auto& word, auto& fields) { return plan.take(word, fields); });
        plan.complete = read && plan.scalars.count("alpha") && plan.scalars.count("beta");
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

}  // namespace gemmtune::detail
