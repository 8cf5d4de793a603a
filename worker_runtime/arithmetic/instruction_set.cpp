#include "worker_runtime/arithmetic/instruction_set.h"

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "rendezvous/base/log.h"

namespace muster::runtime {

namespace {

struct Choice {
    InstructionSet set;
    std::string_view name;
};

/// Sorted from best to worst.
constexpr Choice choices[] = {
    {InstructionSet::avx512, "avx512"}, {InstructionSet::avx2, "avx2"}, {InstructionSet::scalar, "scalar"}};

Choice choose() {
    const char* wish = std::getenv("MUSTER_SIMD");
    bool wish_known = wish == nullptr || *wish == '\0';
    bool reached = wish_known;
    const Choice* best = nullptr;
    for (const auto& choice : choices) {
        if (!reached && choice.name == wish) reached = wish_known = true;
        if (!supports(choice.set)) continue;
        if (reached) return choice;
        if (!best) best = &choice;
    }
    log(LogLevel::warning, "MUSTER_SIMD=", wish, " is not supported (accepted: avx512, avx2, scalar); using ",
        best->name);
    return *best;
}

const Choice& chosen() {
    static const Choice choice = choose();
    return choice;
}

}  // namespace

bool supports(InstructionSet set) {
#if defined(__x86_64__)
    // Every processor with AVX2 also has F16C, but F16C has its own bit, which older compilers' function does not
    // support.
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
    switch (set) {
        case InstructionSet::avx512:
            return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512vl") && f16c;
        case InstructionSet::avx2: return __builtin_cpu_supports("avx2") && f16c;
        case InstructionSet::scalar: return true;
    }
#endif
    return set == InstructionSet::scalar;
}

InstructionSet chosen_instruction_set() {
    return chosen().set;
}

std::string_view instruction_set() {
    return chosen().name;
}

}  // namespace muster::runtime
