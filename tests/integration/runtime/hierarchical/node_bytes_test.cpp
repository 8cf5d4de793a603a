// How many bytes the ranks of several nodes send over TCP in all, where each of them need not send everything: counted
// by the kernel.
#include <functional>
#include <numeric>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/hierarchical/node_ranks.h"
#include "tests/integration/runtime/tcp/tcp_bytes.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace muster {

using namespace runtime;

namespace {

constexpr int size = 6;
constexpr std::size_t count = 60'000;  // of each rank's piece, or of the whole
constexpr double whole_bytes = count * sizeof(float);

/// By all ranks together, in one such operation.
double sent_in(const std::function<Operation(std::vector<float>& input, std::vector<float>& output)>& make,
               const std::vector<int>& nodes = {3, 3}) {
    const int ranks = std::accumulate(nodes.begin(), nodes.end(), 0);
    test::Findings findings;
    std::size_t before = 0;
    std::size_t after = 0;
    test::run_as_threads(ranks, [&](const GroupTerms& terms) {
        const auto world = test::join_over_nodes(terms, nodes);
        std::vector<float> input(count * static_cast<std::size_t>(ranks));
        std::vector<float> output(count * static_cast<std::size_t>(ranks));
        const auto in_step = [&] { findings.expect(test::carry_out(*world, barrier()), "barrier"); };
        in_step();
        if (terms.rank == 0) before = test::tcp_bytes_received();
        in_step();
        findings.expect(test::carry_out(*world, make(input, output)), "the operation");
        in_step();
        if (terms.rank == 0) after = test::tcp_bytes_received();
        in_step();
    });
    CHECK(findings.text() == "");
    return static_cast<double>(after - before);
}

Buffer part(std::vector<float>& memory, std::size_t elements) {
    return buffer(std::span(memory.data(), elements));
}

}  // namespace

TEST_CASE("between nodes of several ranks no byte crosses that another rank of the node has brought") {
    // Signatures and the two barriers come on top.
    const auto about = [](double bytes) { return Approx(bytes + 15'000).margin(15'000); };
    // Each of 3 ranks for each of the 3 elsewhere, both ways: 18 pieces, where all between all were 30.
    CHECK(sent_in([](auto& input, auto& output) {
              return all_to_all(part(input, count * size), part(output, count * size), size);
          }) == about(18 * whole_bytes));
    CHECK(sent_in([](auto& input, auto& output) {
              const auto row = parts_in_a_row(std::vector<std::size_t>(size, count));
              return all_to_all_uneven(input.data(), output.data(), DataType::f32, {row, row});
          }) == about(18 * whole_bytes));
    // Each node's 3 pieces once to the other.
    CHECK(sent_in([](auto& input, auto& output) {
              return all_gather(part(input, count), part(output, count * size));
          }) == about(6 * whole_bytes));
    CHECK(sent_in([](auto& input, auto&) { return broadcast(part(input, count), 4); }) == about(whole_bytes));
    // Sums go there, results back.
    CHECK(sent_in([](auto& input, auto&) { return all_reduce(part(input, count), ReduceOp::sum); }) ==
          about(2 * whole_bytes));
    // A reduce of 10 ranks goes the same way. Between all of them, each would send 9 tenths of it, and then its sums.
    CHECK(sent_in([](auto& input,
                     auto& output) { return reduce(part(input, count), part(output, count), ReduceOp::sum, 7); },
                  {5, 5}) == Approx(2 * whole_bytes + 40'000).margin(40'000));
}

}  // namespace muster
