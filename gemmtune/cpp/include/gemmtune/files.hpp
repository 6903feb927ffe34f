// What a bundle's files hold: their content, digest, names, and whether they are programs.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gemmtune/error.hpp"

namespace gemmtune::detail {

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

// The only names that a member of a manifest may list: table.json, cubins/DIGEST.cubin and plans/NAME.plan among `files`,
// algorithms/NAME.algorithm among `algorithms`.
inline bool is_name(const std::string& member, const std::string& name) {
    auto holds = [&](const std::string& folder, size_t digits, const std::string& suffix) {
        return name.size() == folder.size() + digits + suffix.size() && name.compare(0, folder.size(), folder) == 0 &&
               name.find_first_not_of("0123456789abcdef", folder.size()) == folder.size() + digits &&
               name.compare(folder.size() + digits, suffix.size(), suffix) == 0;
    };
    if (member == "algorithms") return holds("algorithms/", 32, ".algorithm");
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

// Gives the word and the fields of each line of a text to `take`, from the line after its schema to its line `end`. False
// for a text of another schema or without an end, and where `take` refuses a line.
template <class Take>
bool read_lines(const std::string& text, const char* schema, Take take) {
    std::istringstream lines(text);
    std::string line;
    if (!std::getline(lines, line) || line != schema) return false;
    while (std::getline(lines, line)) {
        std::istringstream fields(line);
        std::string word;
        fields >> word;
        if (word == "end") return true;
        if (!take(word, fields) || fields.fail()) return false;
    }
    return false;
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

}  // namespace gemmtune::detail
