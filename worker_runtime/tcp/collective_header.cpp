#include "worker_runtime/tcp/collective_header.h"

#include <bit>
#include <cstring>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/bytes.h"
#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

/// "MUSTROP" and the version of this format.
constexpr std::uint64_t magic = 0x02504f5254'53554dull;

}  // namespace

CollectiveHeader header_of(const Operation& operation, std::uint64_t number) {
    return {.kind = operation.kind,
            .type = operation.type,
            .reduce = operation.reduce,
            .peer = operation.peer,
            .tag = operation.tag,
            .weight = operation.weight,
            .count = operation.count,
            .number = number};
}

HeaderBytes encode(const CollectiveHeader& header) {
    std::string text;
    text.reserve(sizeof(HeaderBytes));
    ByteWriter writer(text);
    writer.number(magic);
    writer.number(header.number);
    writer.number(header.count);
    writer.number(header.peer);
    writer.number(header.tag);
    writer.number(std::bit_cast<std::uint64_t>(header.weight));
    writer.number(static_cast<std::uint8_t>(header.kind));
    writer.number(static_cast<std::uint8_t>(header.type));
    writer.number(static_cast<std::uint8_t>(header.reduce));
    writer.number(header.flags);
    HeaderBytes bytes{};
    MUSTER_CHECK(text.size() <= bytes.size(), text.size());
    std::memcpy(bytes.data(), text.data(), text.size());
    return bytes;
}

bool decode(const HeaderBytes& bytes, CollectiveHeader& header) {
    ByteReader reader({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    const bool known = reader.number<std::uint64_t>() == magic;
    header.number = reader.number<std::uint64_t>();
    header.count = reader.number<std::uint64_t>();
    header.peer = reader.number<std::int32_t>();
    header.tag = reader.number<std::uint32_t>();
    header.weight = std::bit_cast<double>(reader.number<std::uint64_t>());
    const auto kind = reader.number<std::uint8_t>();
    const auto type = reader.number<std::uint8_t>();
    const auto reduce = reader.number<std::uint8_t>();
    header.flags = reader.number<std::uint8_t>();
    header.kind = static_cast<OperationKind>(kind);
    header.type = static_cast<DataType>(type);
    header.reduce = static_cast<ReduceOp>(reduce);
    return known && is_known(header.kind, header.type, header.reduce);
}

bool agree(const CollectiveHeader& a, const CollectiveHeader& b) {
    constexpr std::uint8_t told = CollectiveHeader::allocates | CollectiveHeader::chained |
                                  CollectiveHeader::continues | CollectiveHeader::weighs;
    return a.kind == b.kind && a.type == b.type && a.reduce == b.reduce && a.peer == b.peer && a.tag == b.tag &&
           a.count == b.count && a.number == b.number && (a.flags & told) == (b.flags & told);
}

std::string describe(const CollectiveHeader& header) {
    if (header.flags & CollectiveHeader::allocates) return cat("allocate ", header.count, " bytes");
    const Operation operation{
        .kind = header.kind, .type = header.type, .reduce = header.reduce, .count = header.count, .peer = header.peer};
    return cat(describe(operation), header.flags & CollectiveHeader::chained ? " from rank to rank" : "",
               header.flags & CollectiveHeader::weighs ? " weighted" : "",
               header.flags & CollectiveHeader::continues ? " continued" : "",
               header.tag != 0 ? cat(" tagged ", header.tag) : std::string());
}

}  // namespace muster::runtime
