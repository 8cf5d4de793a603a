#include "worker_runtime/checkpoint/format/safetensors.h"

#include <string>

#include "rendezvous/base/text/bytes.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

namespace muster::runtime {

namespace {

/// N and the JSON, as somebody else might have written them.
std::string head_of(const std::string& json) {
    std::string bytes;
    ByteWriter writer(bytes);
    writer.number(static_cast<std::uint64_t>(json.size()));
    writer.raw(json);
    return bytes;
}

/// What is said of a file with this header and `data_bytes` behind it.
std::string complaint(const std::string& json, std::uint64_t data_bytes) {
    const auto head = head_of(json);
    const auto parsed = parse_safetensors(head, head.size() + data_bytes);
    return parsed ? "" : parsed.error().context;
}

const SafetensorsHeader two_tensors{
    .tensors = {{.name = "layer.0.weight", .type = TensorType::f32, .shape = {2, 3}, .begin = 0, .end = 24},
                {.name = "flag \"x\" \n\t\xC3\xA9", .type = TensorType::boolean, .shape = {}, .begin = 24, .end = 25},
                {.name = "empty", .type = TensorType::bf16, .shape = {0, 7}, .begin = 25, .end = 25}},
    .metadata = {{"format", "pt"}, {"step", "12"}}};

}  // namespace

TEST_CASE("a safetensors header has exactly the documented bytes") {
    const SafetensorsHeader header{
        .tensors = {{.name = "a", .type = TensorType::f16, .shape = {3}, .begin = 0, .end = 6}},
        .metadata = {{"k", "v"}}};
    const std::string json = R"({"__metadata__":{"k":"v"},"a":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}})";
    const auto bytes = make_safetensors_header(header, 1);
    CHECK(bytes == head_of(json));
    const auto padded = make_safetensors_header(header, 64);
    CHECK(padded.size() == 128);
    CHECK(padded.substr(8, json.size()) == json);
    CHECK(padded.substr(8 + json.size()) == std::string(128 - 8 - json.size(), ' '));
}

TEST_CASE("a safetensors header comes back as it was") {
    for (const std::size_t alignment : {1, 8, 4096}) {
        const auto head = make_safetensors_header(two_tensors, alignment);
        CHECK(head.size() % alignment == 0);
        CHECK(safetensors_data_begin(head, head.size() + 25).value() == head.size());
        CHECK(parse_safetensors(head, head.size() + 25).value() == two_tensors);
    }
}

TEST_CASE("every type of safetensors has its name and size") {
    for (int i = 0; i < tensor_type_count; ++i) {
        const auto type = static_cast<TensorType>(i);
        CHECK(tensor_type_named(name(type)) == type);
        CHECK(size_of(type) >= 1);
    }
    for (int i = 0; i < data_type_count; ++i) {
        const auto type = static_cast<DataType>(i);
        CHECK(is_data_type(i) == (tensor_type(type) != TensorType::boolean));
        CHECK(size_of(tensor_type(type)) == size_of(type));
    }
    CHECK(name(tensor_type(DataType::u8)) == "U8");
    CHECK(name(tensor_type(DataType::i16)) == "I16");
    CHECK(name(tensor_type(DataType::u64)) == "U64");
    CHECK_FALSE(tensor_type_named("F4"));
}

TEST_CASE("damaged and hostile safetensors headers are refused with a reason") {
    const auto tensor = [](const std::string& fields) { return cat("{\"a\":{", fields, "}}"); };
    const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
    CHECK(complaint(tensor(good), 8).empty());
    CHECK_THAT(complaint(tensor(good), 7), Catch::Contains("cut short"));
    CHECK_THAT(complaint(tensor(good), 9), Catch::Contains("something else follows"));
    CHECK_THAT(complaint("[]", 0), Catch::Contains("does not begin with {"));
    CHECK_THAT(complaint(R"({"a":{"dtype":"F32")", 0), Catch::Contains("not valid JSON"));
    CHECK_THAT(complaint("{\"a\xFF\":{}}", 0), Catch::Contains("UTF-8"));
    CHECK_THAT(complaint(cat(R"({"a":)", std::string(100'000, '[')), 0), Catch::Contains("a list in the place of"));
    CHECK_THAT(complaint(cat(R"({"a":)", std::string(100'000, '{')), 0), Catch::Contains("not valid JSON"));
    CHECK_THAT(complaint(tensor(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"), 8),
               Catch::Contains("a list in tensor a"));
    CHECK_THAT(complaint(cat("{\"a\":{", good, "},\"a\":{", good, "}}"), 8), Catch::Contains("occurs twice"));
    CHECK_THAT(complaint(tensor(cat(good, R"(,"shape":[2])")), 8), Catch::Contains("shape occurs twice"));
    CHECK_THAT(complaint(tensor(cat(good, R"(,"extra":"x")")), 8), Catch::Contains("unknown field extra"));
    CHECK_THAT(complaint(R"({"__metadata__":{"k":1}})", 0), Catch::Contains("only texts"));
    CHECK_THAT(complaint(R"({"a":1})", 0), Catch::Contains("in the place of a tensor's description"));
    CHECK_THAT(complaint(tensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), 8), Catch::Contains("negative"));
    CHECK_THAT(complaint(tensor(R"("dtype":"F32","shape":[2.5],"data_offsets":[0,8])"), 8),
               Catch::Contains("not an integer"));
    CHECK_THAT(complaint(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,9])"), 8),
               Catch::Contains("a number in"));
    CHECK_THAT(complaint(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), 8),
               Catch::Contains("not two numbers"));
    CHECK_THAT(complaint(tensor(R"("dtype":"F32","data_offsets":[0,8])"), 8), Catch::Contains("no shape"));
    CHECK_THAT(complaint(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), 8),
               Catch::Contains("do not hold"));
    CHECK_THAT(complaint(tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), 8), Catch::Contains("12 bytes"));
    CHECK_THAT(complaint(tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8])"), 8),
               Catch::Contains("more elements than there are numbers"));
    CHECK_THAT(complaint(tensor(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8])"), 8),
               Catch::Contains("a dimension of"));
    CHECK_THAT(complaint(tensor(R"("dtype":"F4","shape":[2],"data_offsets":[0,8])"), 8), Catch::Contains("dtype F4"));
}

TEST_CASE("tensors that overlap or leave a hole are refused, naming the second") {
    const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
    const auto both = [&](int begin) {
        return cat("{", a, R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[)", begin, ",", begin + 4, "]}}");
    };
    CHECK(complaint(both(4), 8).empty());
    CHECK_THAT(complaint(both(3), 7), Catch::Contains("tensor b: begins at byte 3, inside the one before it"));
    CHECK_THAT(complaint(both(5), 9), Catch::Contains("tensor b: begins at byte 5, not right behind"));
}

TEST_CASE("a header longer than its file is refused before anything is read") {
    std::string bytes;
    ByteWriter(bytes).number(std::uint64_t{1000});
    CHECK_THAT(safetensors_data_begin(bytes, 1007).error().context, Catch::Contains("1000 bytes in a file of 1007"));
    CHECK(safetensors_data_begin(bytes, 1008).value() == 1008);
    bytes.clear();
    ByteWriter(bytes).number(~std::uint64_t{0});
    CHECK_THAT(safetensors_data_begin(bytes, ~std::uint64_t{0}).error().context, Catch::Contains("allowed"));
    CHECK_THAT(safetensors_data_begin("short", 5).error().context, Catch::Contains("8 bytes"));
}

}  // namespace muster::runtime
