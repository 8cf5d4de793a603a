// Memory of HostMemory: the pool alone, and collectives of ranks that allocate each in its own way.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/shared_group.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "worker_runtime/shared_memory/host_memory.h"
#include "worker_runtime/shared_memory/shared_collectives.h"
#include "worker_runtime/shared_memory/shared_segment.h"

namespace muster {

using namespace runtime;
using test::Findings;

namespace {

HostMemory& pool() {
    return HostMemory::of_process();
}

/// Floats of the pool.
struct Lent {
    explicit Lent(std::size_t count)
        : values(reinterpret_cast<float*>(pool().allocate(count * sizeof(float)).value()), count) {}
    ~Lent() { pool().release(values.data()); }
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;
    std::span<float> values;
};

/// Rank r's element i. Sums of these depend on their order.
float element(int rank, std::size_t i) {
    return static_cast<float>((i * 2654435761u + static_cast<std::size_t>(rank) * 40503u) % 100003) / 997.0f;
}

void fill(std::span<float> values, int rank) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = element(rank, i);
}

RunTerms terms_for(Duration timeout) {
    return {.deadline = std::chrono::steady_clock::now() + timeout, .patience = WaitMode::frugal};
}

constexpr std::size_t huge_page_bytes = 2u << 20;

/// Whether this kernel makes huge pages of shared memory for who asks (Linux 6.1 and later, unless it is built
/// without).
bool makes_huge_pages(std::size_t room_bytes) {
    const FileDescriptor file(::memfd_create("test", MFD_CLOEXEC));
    REQUIRE(::ftruncate(file.get(), static_cast<off_t>(room_bytes)) == 0);
    void* const room = ::mmap(nullptr, 2 * room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(room != MAP_FAILED);
    const auto begin =
        (reinterpret_cast<std::uintptr_t>(room) + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes;
    void* const data = ::mmap(reinterpret_cast<void*>(begin), room_bytes, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_FIXED, file.get(), 0);
    REQUIRE(data != MAP_FAILED);
    std::memset(data, 1, room_bytes);
    const bool made = ::madvise(data, room_bytes, 25) == 0;  // MADV_COLLAPSE
    ::munmap(room, 2 * room_bytes);
    return made;
}

/// KiB of the mapping at `data` that this process sees through huge pages.
long huge_kib(const void* data) {
    std::ifstream maps("/proc/self/smaps");
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    bool is_here = false;
    for (std::string line; std::getline(maps, line);) {
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0;
        char dash = 0;
        if (std::istringstream range(line); range >> std::hex >> begin >> dash >> end && dash == '-')
            is_here = begin <= address && address < end;
        if (is_here && line.starts_with("ShmemPmdMapped:")) return std::stol(line.substr(line.find(':') + 1));
    }
    return -1;
}

}  // namespace

TEST_CASE("the pool's memory lies in huge pages, for its owner and for other ranks") {
    constexpr std::size_t size_bytes = 4 * huge_page_bytes;
    const auto expect_kib = [] { return makes_huge_pages(size_bytes) ? static_cast<long>(size_bytes >> 10) : 0; };
    long expected_kib = expect_kib();
    auto* data = pool().allocate(size_bytes).value();
    // The kernel may refuse a huge page at one moment and give it at another.
    for (int turn = 0; turn < 10 && (expected_kib == 0 || huge_kib(data) < expected_kib); ++turn) {
        pool().retire(pool().find(data).region);
        pool().release(data);
        expected_kib = expect_kib();
        data = pool().allocate(size_bytes).value();
    }
    CHECK(std::all_of(data, data + size_bytes, [](std::byte one) { return one == std::byte{0}; }));
    CHECK(huge_kib(data) >= expected_kib);
    const auto other = SharedSegment::map(pool().descriptor(pool().find(data).region).value()).value();
    CHECK(other.data() != data);
    CHECK(huge_kib(other.data()) >= expected_kib);
    pool().release(data);
}

TEST_CASE("allocations of the pool never overlap, and what is released serves again") {
    std::mt19937 random(7);
    std::map<std::byte*, std::size_t> held;
    const auto fresh_mark = [&](std::byte* data, std::size_t size) {
        std::memset(data, static_cast<int>(reinterpret_cast<std::uintptr_t>(data) >> 8 & 0xff), size);
    };
    for (int step = 0; step < 4000; ++step) {
        if (held.size() < 40 && random() % 2 == 0) {
            const std::size_t size = random() % 3 == 0 ? random() % 2'000'000 : random() % 5'000;
            auto* const data = pool().allocate(size).value();
            REQUIRE(reinterpret_cast<std::uintptr_t>(data) % 256 == 0);
            REQUIRE(held.emplace(data, size).second);
            fresh_mark(data, size);
        } else if (!held.empty()) {
            const auto one = std::next(held.begin(), static_cast<std::ptrdiff_t>(random() % held.size()));
            const auto mark = static_cast<std::byte>(reinterpret_cast<std::uintptr_t>(one->first) >> 8 & 0xff);
            REQUIRE(std::all_of(one->first, one->first + one->second, [&](std::byte byte) { return byte == mark; }));
            REQUIRE(pool().release(one->first));
            held.erase(one);
        }
    }
    for (const auto& [data, size] : held) REQUIRE(pool().release(data));
    // All of it is free again, and joined: what was in use at once is one piece of a region, or fits beside others.
    auto* const again = pool().allocate(4'000'000).value();
    CHECK(pool().release(again));
    CHECK_FALSE(pool().release(again));
    CHECK(pool().allocate(4'000'000).value() == again);
    CHECK(pool().release(again));
    int on_stack = 0;
    CHECK(pool().find(&on_stack).region == 0);
    CHECK_FALSE(pool().allocate(~std::size_t{0}).has_value());
}

TEST_CASE("ranks that allocate differently reduce in place, with the bits of the windows") {
    for (const int size : {2, 3}) {
        Findings findings;
        test::run_as_threads(size, [&](const GroupTerms& terms) {
            const auto group = test::form_shared_group(terms);
            const auto own = static_cast<std::size_t>(terms.rank);
            const auto ranks = static_cast<std::size_t>(size);
            constexpr std::size_t count = 300'001;
            for (int round = 0; round < 3; ++round) {
                // A rank that allocates more, earlier or never before is in another region, at another offset.
                const Lent extra(1 + own * 2'000'003 * static_cast<std::size_t>(round));
                const Lent data(count + 7);
                const auto place = data.values.subspan(own * 3 % 7, count);
                const auto about = [&](const char* what) { return cat(what, ", rank ", own, " of ", size); };
                std::vector<float> expected(count);
                fill(expected, terms.rank);
                const auto limit = terms_for(60s);
                findings.expect(run_collective(*group, all_reduce(buffer(std::span(expected)), ReduceOp::avg), limit),
                                about("windows"));
                fill(place, terms.rank);
                findings.expect(run_collective(*group, all_reduce(buffer(place), ReduceOp::avg), limit),
                                about("in place"));
                findings.expect(group->common_memory(count * sizeof(float)).value().size() == ranks,
                                about("not in place"));
                findings.expect(std::memcmp(place.data(), expected.data(), count * sizeof(float)) == 0,
                                about("all_reduce"));
                // The pieces of all ranks from memory at different offsets.
                const std::size_t piece = count / ranks;
                fill(place, terms.rank);
                std::vector<float> mine(piece), all(piece * ranks);
                const ConstBuffer whole(place.data(), piece * ranks, DataType::f32);
                findings.expect(
                    run_collective(*group, reduce_scatter(whole, buffer(std::span(mine)), ReduceOp::sum), limit),
                    about("reduce_scatter"));
                float sum = 0;
                for (int rank = 0; rank < size; ++rank) sum += element(rank, own * piece + 5);
                findings.expect(mine[5] == sum, about("reduce_scatter"));
                findings.expect(
                    run_collective(*group, all_gather({place.data(), piece, DataType::f32}, buffer(std::span(all))),
                                   limit),
                    about("all_gather"));
                for (int rank = 0; rank < size; ++rank)
                    findings.expect(all[static_cast<std::size_t>(rank) * piece + 11] == element(rank, 11),
                                    about("all_gather"));
                findings.expect(run_collective(*group, all_to_all(whole, buffer(std::span(all)), size), limit),
                                about("all_to_all"));
                for (int rank = 0; rank < size; ++rank)
                    findings.expect(all[static_cast<std::size_t>(rank) * piece + 3] == element(rank, own * piece + 3),
                                    about("all_to_all"));
            }
        });
        CHECK(findings.text() == "");
    }
}

TEST_CASE("parts of one size and what is reduced to a root come from the pool as they lie") {
    constexpr int size = 3, root = 2;
    constexpr std::size_t piece = 100'000;
    Findings findings;
    test::run_as_threads(size, [&](const GroupTerms& terms) {
        const auto group = test::form_shared_group(terms);
        const auto own = static_cast<std::size_t>(terms.rank);
        const Lent data(size * piece + 7);
        const auto place = data.values.subspan(own * 3, size * piece);
        fill(place, terms.rank);
        std::vector<float> all(size * piece, -1.0f), mine(piece);
        const auto row = parts_in_a_row(std::vector<std::size_t>(size, piece));
        const auto exchange = all_to_all_uneven(place.data(), all.data(), DataType::f32, {row, row});
        findings.expect(run_collective(*group, exchange, terms_for(60s)), "exchange");
        for (std::size_t i = 0; i < all.size(); ++i)
            if (all[i] != element(static_cast<int>(i / piece), own * piece + i % piece))
                return findings.expect(false, cat("element ", i, " of rank ", own));
        const auto result = terms.rank == root ? place.first(piece) : std::span(mine);
        const auto summed = reduce({place.data(), piece, DataType::f32}, buffer(result), ReduceOp::sum, root);
        findings.expect(run_collective(*group, summed, terms_for(60s)), "reduce");
        const float sum = element(0, 5) + element(1, 5) + element(2, 5);
        findings.expect(group->common_memory(piece * sizeof(float)).value().size() == size, "not in place");
        findings.expect(mine[5] == 0, "no result elsewhere");
        findings.expect(place[5] == (terms.rank == root ? sum : element(terms.rank, 5)), "the sum");
    });
    CHECK(findings.text() == "");
}

TEST_CASE("a rank whose memory is its own makes all copy, and later operations are in place again") {
    Findings findings;
    test::run_as_threads(3, [&](const GroupTerms& terms) {
        const auto group = test::form_shared_group(terms);
        constexpr std::size_t count = 400'000;
        const Lent data(count);
        std::vector<float> own(count);
        for (int mixture = 0; mixture < 8; ++mixture) {
            const bool lends = (mixture >> terms.rank & 1) != 0;
            const std::span used = lends ? data.values : std::span(own);
            fill(used, terms.rank);
            findings.expect(run_collective(*group, all_reduce(buffer(used), ReduceOp::sum), terms_for(60s)), "run");
            for (std::size_t i = 0; i < count; i += 777)
                findings.expect(used[i] == element(0, i) + element(1, i) + element(2, i), cat("mixture ", mixture));
            findings.expect(group->common_memory(count * sizeof(float)).value().empty() == (mixture != 7),
                            cat("place of mixture ", mixture));
        }
    });
    CHECK(findings.text() == "");
}

TEST_CASE("ranks in processes of their own map each other's memory") {
    test::RankProcesses ranks(3, [](const GroupTerms& terms) {
        const auto group = test::form_shared_group(terms);
        for (const std::size_t count : {std::size_t{100'000}, std::size_t{3'000'000}}) {
            const Lent data(count + static_cast<std::size_t>(terms.rank) * 1000);
            const auto place = data.values.last(count);
            fill(place, terms.rank);
            if (!run_collective(*group, all_reduce(buffer(place), ReduceOp::sum), terms_for(60s))) return 1;
            if (group->common_memory(count * sizeof(float)).value().size() != 3) return 2;
            for (std::size_t i = 0; i < count; i += 99)
                if (place[i] != element(0, i) + element(1, i) + element(2, i)) return 3;
        }
        return run_collective(*group, barrier(), terms_for(60s)) ? 0 : 4;
    });
    for (const auto& end : ranks.join()) CHECK((end.exited && end.code == 0));
}

TEST_CASE("memory of an operation that failed serves no later allocation, because a late rank may still write there") {
    Findings findings;
    std::vector<std::uint32_t> regions(2);
    test::run_as_threads(2, [&](const GroupTerms& terms) {
        const auto group = test::form_shared_group(terms);
        const auto own = static_cast<std::size_t>(terms.rank);
        const Lent data(200'000);
        fill(data.values, terms.rank);
        const auto operation = all_reduce(buffer(data.values), ReduceOp::sum);
        findings.expect(run_collective(*group, operation, terms_for(60s)), "the first one");
        regions[own] = pool().find(data.values.data()).region;
        findings.expect(regions[own] != 0, "not in the pool");
        if (terms.rank == 1) return;
        findings.expect(!run_collective(*group, operation, terms_for(60s)), "the other rank has left");
        findings.expect(pool().find(data.values.data()).region == 0, "still in use");
    });
    CHECK(findings.text() == "");
    const Lent later(200'000);
    CHECK(pool().find(later.values.data()).region != regions[0]);
}

TEST_CASE("a forked child has a pool of its own") {
    auto* const data = pool().allocate(1000).value();
    const int child = ::fork();
    if (child == 0) {
        const bool is_new = pool().find(data).region == 0 && !pool().release(data);
        auto* const own = pool().allocate(1000).value();
        std::memset(own, 1, 1000);
        ::_exit(is_new && pool().release(own) ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(pool().release(data));
}

}  // namespace muster
