// Launches one problem's algorithm on the libraries that print their calls:
// library BUNDLE PROBLEM-KEY A B C SOURCE BIAS ALPHA BETA SCALE-A SCALE-B
// or prints the f16 of numbers, given as their bits: library half BITS…
#define main stub
#include "driver.cpp"
#undef main

#include "gemmtune/cublaslt.hpp"

static int failed(const gemmtune::Error& error) { return std::fprintf(stderr, "%s\n", error.message.c_str()), 1; }

int main(int count, char** words) {
    if (!std::strcmp(words[1], "half")) {
        for (int word = 2; word < count; ++word) {
            auto bits = static_cast<uint32_t>(std::strtoul(words[word], nullptr, 0));
            float value;
            std::memcpy(&value, &bits, sizeof value);
            std::printf("%u\n", gemmtune::detail::half_bits(value));
        }
        return 0;
    }
    gemmtune::Bundle bundle;
    if (auto error = bundle.load(words[1])) return failed(error);
    gemmtune::Algorithm algorithm;
    if (!algorithm.launch(nullptr, {})) return failed({"launched before it was loaded"});
    gemmtune::Kernel kernel;
    if (auto error = algorithm.load(bundle, words[2])) {
        if (auto other = kernel.load(bundle, words[2])) std::fprintf(stderr, "%s\n", other.message.c_str());
        return failed(error);
    }
    if (auto error = kernel.load(bundle, words[2])) std::fprintf(stderr, "%s\n", error.message.c_str());
    auto address = [&](int word) { return std::strtoull(words[word], nullptr, 0); };
    gemmtune::Operands operands{address(3), address(4), address(5), address(6), address(7), std::strtof(words[8], nullptr),
                                std::strtof(words[9], nullptr), address(10), address(11)};
    // A second load replaces the first.
    if (auto error = algorithm.load(bundle, words[2])) return failed(error);
    if (auto error = algorithm.launch(nullptr, operands)) return failed(error);
    return 0;
}
