#include <openssl/evp.h>

#include "rendezvous/state/etcd/etcd_protocol.h"

namespace muster::rendezvous {

namespace {

constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const unsigned char* data_of(std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

std::string to_base64(std::string_view bytes) {
    std::string out((bytes.size() + 2) / 3 * 4 + 1, '\0');  // with the zero that OpenSSL appends
    EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()), data_of(bytes), static_cast<int>(bytes.size()));
    out.pop_back();
    return out;
}

std::optional<std::string> from_base64(std::string_view text) {
    // OpenSSL skips blanks at both ends and takes a padding character anywhere for a zero.
    const auto padding = text.size() - (text.find_last_not_of('=') + 1);
    const bool is_whole = text.size() % 4 == 0 && padding <= 2;
    if (!is_whole || text.substr(0, text.size() - padding).find_first_not_of(digits) != std::string_view::npos)
        return std::nullopt;
    std::string out(text.size() / 4 * 3, '\0');
    EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()), data_of(text), static_cast<int>(text.size()));
    out.resize(out.size() - padding);
    return out;
}

}  // namespace muster::rendezvous
