// An algorithm of cuBLASLt as text, as algorithms/NAME.algorithm has it: what the library is told of the product, and the
// attributes that rebuild the algorithm. Nothing here needs the library; gemmtune/cublaslt.hpp runs what this reads.
#pragma once

#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gemmtune/files.hpp"

namespace gemmtune::detail {

// A column-major matrix, one for each product of a batch; distances from column to column and between matrices are elements.
struct Matrix {
    int type;
    uint64_t rows, columns;
    int64_t line;
    int32_t batch;
    int64_t apart;
};

struct AlgorithmText {
    std::string problem, version;
    size_t workspace_bytes = 0;
    std::map<std::string, size_t> alignment;
    int compute = -1, scalar = -1;
    std::vector<std::pair<std::string, int64_t>> operation, attributes;
    std::map<std::string, Matrix> matrices;
    bool complete = false;

    // Reads lines of `gemmtune.algorithm/1`; incomplete if one has another form.
    static AlgorithmText of(const std::string& text) {
        AlgorithmText found;
        auto read = read_lines(text, "gemmtune.algorithm/1",
                               [&](auto& word, auto& fields) { return found.take(word, fields); });
        found.complete = read && !found.problem.empty() && !found.version.empty() && found.compute >= 0 &&
                         found.scalar >= 0 && found.number("ID") >= 0;
        for (auto name : {"first", "second", "source", "output"}) found.complete &= found.matrices.count(name) > 0;
        return found;
    }

    // The value of an attribute of the algorithm; -1 without it.
    int64_t number(const std::string& name) const {
        for (auto& [each, value] : attributes)
            if (each == name) return value;
        return -1;
    }

private:
    bool take(const std::string& word, std::istringstream& fields) {
        if (word == "problem") return static_cast<bool>(fields >> problem);
        if (word == "cublaslt") return static_cast<bool>(fields >> version);
        if (word == "workspace") return static_cast<bool>(fields >> workspace_bytes);
        if (word == "compute") return static_cast<bool>(fields >> compute >> scalar);
        std::string name;
        if (!(fields >> name)) return false;
        if (word == "align") return static_cast<bool>(fields >> alignment[name]);
        if (word == "matrix") {
            auto& matrix = matrices[name];
            return static_cast<bool>(fields >> matrix.type >> matrix.rows >> matrix.columns >> matrix.line >> matrix.batch >>
                                     matrix.apart);
        }
        int64_t value = 0;
        if (!(fields >> value) || (word != "operation" && word != "attribute")) return false;
        (word == "operation" ? operation : attributes).emplace_back(name, value);
        return true;
    }
};

}  // namespace gemmtune::detail
