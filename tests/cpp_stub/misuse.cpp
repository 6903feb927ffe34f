// Calls in the wrong order, and plans that no launcher makes: prints a line for each, and crashes at none.
// misuse BUNDLE BROKEN-BUNDLE PROBLEM-KEY
#define main stub
#include "driver.cpp"
#undef main

static void say(const char* what, const gemmtune::Error& error) { std::fprintf(stderr, "%s: %s\n", what, error.message.c_str()); }

static void plan(const char* what, const std::string& lines) {
    auto found = gemmtune::detail::Plan::of("gemmtune.plan/1\npass gemm 128 0 1 1 0 0\n" + lines + "end\n");
    std::fprintf(stderr, "%s: %s\n", what, found.complete ? "whole" : "no plan");
}

int main(int, char** words) {
    plan("scalars", "value 0000000000000000\nscalar alpha 0 0 0\nscalar beta 0 0 4\n");
    plan("names", "value 0000000000000000\nscalar x 0 0 0\nscalar y 0 0 4\n");
    plan("hex", "value zz00000000000000\nscalar alpha 0 0 0\nscalar beta 0 0 4\n");
    plan("offset", "value 0000000000000000\nscalar alpha 0 0 18446744073709551614\nscalar beta 0 0 4\n");
    plan("short", "value 0000\nscalar alpha 0 0 0\nscalar beta 0 0 0\n");
    plan("alone", "value 0000000000000000\nscalar beta 0 0 4\n");
    plan("pass", "value 0000000000000000\nword a 7 0 0\nscalar alpha 0 0 0\nscalar beta 0 0 4\n");
    plan("align", "align a 0\nvalue 0000000000000000\nscalar alpha 0 0 0\nscalar beta 0 0 4\n");
    plan("map", "value 0000000000000000\nmap a 0 0 2 64 64 1 128 8192 64 64 128 256\nscalar alpha 0 0 0\nscalar beta 0 0 4\n");
    gemmtune::Kernel kernel;
    say("unloaded", kernel.launch(nullptr, {}));
    gemmtune::Bundle bundle;
    current = CUDA_ERROR_NOT_INITIALIZED;
    say("before cuInit", bundle.load(words[1]));
    current = CUDA_ERROR_INVALID_CONTEXT;
    say("no context", bundle.load(words[1]));
    current = CUDA_ERROR_NOT_FOUND;
    say("no device", bundle.load(words[1]));
    current = CUDA_SUCCESS;
    say("bundle", bundle.load(words[1]));
    say("kernel", kernel.load(bundle, words[3]));
    say("again", kernel.load(bundle, words[3]));
    loads = false;
    say("failed", kernel.load(bundle, words[3]));
    say("failed launch", kernel.launch(nullptr, {1 << 20, 1 << 30, 1 << 29}));
    loads = true;
    device_name = "NVIDIA L40S";
    say("switched", kernel.load(bundle, words[3]));
    say("switched launch", kernel.launch(nullptr, {}));
    device_name = "NVIDIA H200";
    say("none", kernel.load(bundle, "gemm:none"));
    say("launch", kernel.launch(nullptr, {}));
    say("broken", bundle.load(words[2]));
    std::fprintf(stderr, "plan: %s\n", bundle.plan(words[3]) ? "kept" : "gone");
    return 0;
}
