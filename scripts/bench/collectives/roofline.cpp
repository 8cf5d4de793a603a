// What the memory of this machine allows: p processes, one pinned to each core, each adding in place on its share of
// the traffic of an all-reduce (every rank reads its slice of all buffers and writes it to all of them). No
// synchronisation within a round but the start. Usage: roofline --ranks P --sizes B,B
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "scripts/bench/collectives/measure.h"

namespace {

/// Spins: every rank has a core of its own here.
struct Gate {
    std::atomic<int> count = 0;
    std::atomic<int> turn = 0;
};

void meet(Gate& gate, int size) {
    const int turn = gate.turn.load();
    if (gate.count.fetch_add(1) + 1 == size) {
        gate.count = 0;
        gate.turn.fetch_add(1);
        return;
    }
    while (gate.turn.load(std::memory_order_acquire) == turn) sched_yield();
}

/// The floor for one rank: an in-place add over `size` buffers' slices.
__attribute__((optimize("O3"), target_clones("default", "avx2", "arch=x86-64-v4"))) void add_slices(
    float* const* buffers, int size, std::size_t from, std::size_t to) {
    if (size == 2) {
        float* __restrict const a = buffers[0];
        float* __restrict const b = buffers[1];
        for (std::size_t i = from; i < to; ++i) a[i] = b[i] = a[i] + b[i];
        return;
    }
    for (std::size_t i = from; i < to; i += 1024) {  // a block stays in the first cache
        const std::size_t end = std::min(i + 1024, to);
        for (int r = 1; r < size; ++r) {
            float* __restrict const a = buffers[0];
            float* __restrict const b = buffers[r];
            for (std::size_t k = i; k < end; ++k) a[k] += b[k];
        }
        for (int r = 1; r < size; ++r) std::memcpy(buffers[r] + i, buffers[0] + i, (end - i) * sizeof(float));
    }
}

/// Memory for all ranks, in huge pages where the kernel makes some, as muster's is.
void* share(std::size_t bytes) {
    constexpr std::size_t huge_page_bytes = 2u << 20;
    void* const room =
        ::mmap(nullptr, bytes + huge_page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) std::abort();
    auto* const data = static_cast<char*>(room) + -reinterpret_cast<std::uintptr_t>(room) % huge_page_bytes;
    for (std::size_t at = 0; at + huge_page_bytes <= bytes; at += huge_page_bytes) data[at] = 0;
    ::madvise(data, bytes / huge_page_bytes * huge_page_bytes, 25);  // MADV_COLLAPSE
    ::madvise(data, bytes, MADV_POPULATE_WRITE);
    return data;
}

}  // namespace

int main(int argc, char** argv) {
    int size = 2;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (argv[i] == std::string("--ranks")) size = std::atoi(argv[i + 1]);
    }
    const bench::Plan plan = bench::plan_from(argc, argv);
    const std::size_t largest = *std::max_element(plan.sizes.begin(), plan.sizes.end());
    auto* const gate = new (share(4096)) Gate;
    auto* const agreed = new (share(4096)) std::atomic<int>(0);
    std::vector<float*> buffers;
    for (int rank = 0; rank < size; ++rank) buffers.push_back(static_cast<float*>(share(largest)));
    int rank = 0;
    for (int next = 1; next < size && rank == 0; ++next) {
        if (::fork() == 0) rank = next;
    }
    bench::pin(rank);
    bench::Method method;
    method.rank = rank;
    method.size = size;
    method.memory = [&](std::size_t) { return buffers[static_cast<std::size_t>(rank)]; };
    method.barrier = [&] { meet(*gate, size); };
    method.all_reduce = [&](void*, std::size_t bytes) {
        const std::size_t count = bytes / sizeof(float);
        const auto at = [&](int r) { return count * static_cast<std::size_t>(r) / static_cast<std::size_t>(size); };
        add_slices(buffers.data(), size, at(rank), at(rank + 1));
    };
    method.agree = [&](int own) {
        if (rank == 0) agreed->store(own);
        meet(*gate, size);
        return agreed->load();
    };
    bench::use_f32(method);
    // Others still write to this rank's buffer until they have finished their slices.
    method.fill = [&, fill = method.fill](void* data, std::size_t bytes, float value) {
        meet(*gate, size);
        fill(data, bytes, value);
    };
    method.read = [&](const void* data, std::size_t index) {
        meet(*gate, size);
        return static_cast<const float*>(data)[index];
    };
    const int status = bench::run(plan, method);
    if (rank != 0) ::_exit(status);
    while (::wait(nullptr) > 0) {
    }
    return status;
}
