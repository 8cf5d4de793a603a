// Which tensors an export puts into which file. What is in the files:
// tests/integration/capi/checkpoint_command_test.py.
#include "worker_runtime/checkpoint/files/export.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::runtime;

namespace {

Manifest manifest_of(const std::vector<std::pair<std::string, std::int64_t>>& tensors,
                     TensorType type = TensorType::u8) {
    Manifest manifest;
    for (const auto& [name, elements] : tensors) {
        manifest.tensors.push_back({.name = name, .type = type, .shape = {elements}, .pieces = {}});
    }
    return manifest;
}

/// "a b | c".
std::string plan_text(const Manifest& manifest, const ExportOptions& options) {
    std::string text;
    for (const auto& file : export_plan(manifest, options)) {
        if (!text.empty()) text += "| ";
        for (const auto& tensor : file) text += tensor.name + " ";
    }
    return text;
}

}  // namespace

TEST_CASE("a file is filled to its limit, and a larger tensor has one of its own") {
    const auto manifest = manifest_of({{"a", 4}, {"b", 6}, {"c", 1}, {"d", 11}, {"e", 0}, {"f", 1}});
    CHECK(plan_text(manifest, {.file_bytes_max = 10}) == "a b | c | d e | f ");
    CHECK(plan_text(manifest, {.file_bytes_max = 1}) == "a | b | c | d e | f ");
    CHECK(plan_text(manifest, {}) == "a b c d e f ");
}

TEST_CASE("inside a file larger elements come first, so that all are aligned") {
    auto manifest = manifest_of({{"a", 3}, {"b", 1}, {"c", 1}});
    manifest.tensors[1].type = TensorType::f64;
    manifest.tensors[2].type = TensorType::bf16;
    CHECK(plan_text(manifest, {}) == "b c a ");
}

TEST_CASE("only tensors with the prefix are taken") {
    const auto manifest = manifest_of({{"model.", 1}, {"model.w", 1}, {"modes", 1}, {"optimizer.w", 1}});
    CHECK(plan_text(manifest, {.prefix = "model."}) == "model.w ");
    CHECK(plan_text(manifest, {.prefix = "none"}) == "");
    CHECK(plan_text(Manifest{}, {}) == "");
}
