#include "worker_runtime/checkpoint/format/manifest.h"

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "worker_runtime/checkpoint/format/safetensors.h"

namespace muster::runtime {

namespace {

char unseen[1];  // nobody looks at it

/// What `world` ranks write of a replicated tensor and of a sharded one.
std::vector<RankFile> files_of(int world) {
    std::vector<RankFile> files;
    for (int rank = 0; rank < world; ++rank) {
        const auto begin = static_cast<std::uint64_t>(rank) * 10;
        const std::vector tensors{StateTensor::whole("weight", TensorType::f32, {1024, 1024}, unseen),
                                  StateTensor::whole("count", TensorType::i64, {}, unseen),
                                  StateTensor::shard("momentum", TensorType::bf16, {10LL * world}, unseen, begin, 10)};
        RankFile file;
        file.step = 12;
        file.round = 3;
        file.job = "job \"1\"";
        file.rank = rank;
        file.world = world;
        file.rank_value = cat("rng of ", rank);
        if (rank == 0) file.values = {{"epoch", "2"}, {"sampler", R"({"cursor": 7})"}};
        lay_out(file, own_pieces(tensors, Replicas::rank_0, rank, world));
        for (std::size_t i = 0; i < file.pieces.size(); ++i)
            file.pieces[i].crc32c = static_cast<std::uint32_t>(rank * 100 + i);
        files.push_back(std::move(file));
    }
    return files;
}

std::string refusal(const std::vector<RankFile>& files) {
    const auto manifest = make_manifest(files, std::vector<std::uint32_t>(files.size()));
    return manifest ? "" : manifest.error().context;
}

}  // namespace

TEST_CASE("a rank's file says in its head all that is needed to put the checkpoint together") {
    for (const int world : {1, 2, 5}) {
        for (const auto& file : files_of(world)) {
            const auto head = encode_head(file);
            CHECK(head.size() == file.data_begin);
            CHECK(head.size() % file_alignment == 0);
            CHECK(parse_rank_file(head, file.size_bytes).value() == file);
        }
    }
    CHECK(rank_file_name(0) == "rank_00000.safetensors");
    CHECK(rank_file_name(123456) == "rank_123456.safetensors");
}

TEST_CASE("larger elements come first in a file, so that all are aligned") {
    const auto file = files_of(1).front();
    for (const auto& stored : file.pieces) CHECK(stored.offset % size_of(stored.piece.type) == 0);
    CHECK(file.pieces.front().piece.type == TensorType::i64);
    CHECK(file.pieces.front().offset == file.data_begin);
}

TEST_CASE("the head of another file is no rank's head") {
    auto complaint = [](SafetensorsHeader header) {
        const auto head = make_safetensors_header(header, 8);
        const auto parsed = parse_rank_file(head, head.size() + 8);
        return parsed ? std::string() : parsed.error().context;
    };
    SafetensorsHeader header{.tensors = {{.name = "a", .type = TensorType::f32, .shape = {2}, .begin = 0, .end = 8}}};
    CHECK_THAT(complaint(header), Catch::Contains("no muster_version"));
    header.metadata = {{"muster_version", "1"},      {"muster_step", "4"},      {"muster_round", "1"},
                       {"muster_job", "j"},          {"muster_rank", "0"},      {"muster_world", "1"},
                       {"muster_values", "{}"},      {"muster_rank_value", ""}, {"muster_pieces", "{}"},
                       {"muster_crc32c", "00000000"}};
    CHECK(complaint(header).empty());
    const auto with = [&](const char* key, const char* value) {
        auto changed = header;
        changed.metadata[key] = value;
        return complaint(changed);
    };
    CHECK_THAT(with("muster_version", "2"), Catch::Contains("newer muster"));
    CHECK_THAT(with("muster_step", "-4"), Catch::Contains("muster_step is '-4'"));
    CHECK_THAT(with("muster_rank", "1"), Catch::Contains("of a world of 1"));
    CHECK_THAT(with("muster_values", "[]"), Catch::Contains("not a JSON object"));
    CHECK_THAT(with("muster_values", R"({"a":1})"), Catch::Contains("values that are not texts"));
    CHECK_THAT(with("muster_crc32c", "0"), Catch::Contains("wrong length"));
    CHECK_THAT(with("muster_crc32c", "0000000x"), Catch::Contains("hexadecimal"));
    CHECK_THAT(with("muster_pieces", R"({"a":{"tensor":"A","shape":[3],"begin":2}})"),
               Catch::Contains("beyond the end of A"));
    CHECK_THAT(with("muster_pieces", R"({"a":{"tensor":"A","shape":[3]}})"), Catch::Contains("is malformed"));
}

TEST_CASE("a manifest comes back as it was, and any changed byte of it is seen") {
    const auto manifest = make_manifest(files_of(3), {1, 2, 3}).value();
    CHECK(manifest.tensors.size() == 3);
    CHECK(manifest.values.at("epoch") == "2");
    CHECK(manifest.rank_values == std::vector<std::string>{"rng of 0", "rng of 1", "rng of 2"});
    const auto text = encode_manifest(manifest);
    CHECK(parse_manifest(text).value() == manifest);
    for (std::size_t i = 0; i < text.size(); ++i) {
        auto changed = text;
        changed[i] = static_cast<char>(changed[i] ^ 1);
        INFO("byte " << i << " of " << text);
        CHECK_FALSE(parse_manifest(changed).has_value());
        CHECK_FALSE(parse_manifest(text.substr(0, i)).has_value());
    }
}

TEST_CASE("files that do not make up one checkpoint get no manifest") {
    CHECK(refusal(files_of(3)).empty());
    auto files = files_of(3);
    files[1].step = 13;
    CHECK_THAT(refusal(files), Catch::Contains("rank_00001.safetensors is of another save"));
    files = files_of(3);
    std::swap(files[1], files[2]);
    CHECK_THAT(refusal(files), Catch::Contains("is of another save"));
    files = files_of(3);
    files.pop_back();
    CHECK_THAT(refusal(files), Catch::Contains("is of another save"));
    files = files_of(3);
    std::erase_if(files[1].pieces, [](const StoredPiece& stored) { return stored.piece.tensor == "momentum"; });
    CHECK_THAT(refusal(files), Catch::Contains("tensor momentum lacks elements 10 to 19"));
    files = files_of(3);
    std::erase_if(files[2].pieces, [](const StoredPiece& stored) { return stored.piece.tensor == "momentum"; });
    CHECK_THAT(refusal(files), Catch::Contains("tensor momentum lacks elements 20 to 29"));
    files = files_of(3);
    for (auto& stored : files[1].pieces) {
        if (stored.piece.tensor == "momentum") stored.piece.begin = 9;
    }
    CHECK_THAT(refusal(files), Catch::Contains("tensor momentum has element 9 in two places"));
    files = files_of(3);
    for (auto& stored : files[1].pieces) stored.piece.shape.push_back(1);
    CHECK_THAT(refusal(files), Catch::Contains("has another type or shape on rank 1 than on rank 0"));
}

}  // namespace muster::runtime
