#include "rendezvous/state/etcd/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <filesystem>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;

namespace {

constexpr std::string_view ca_file = "the CA certificate";
constexpr std::string_view certificate_file = "the client certificate";
constexpr std::string_view key_file = "the key of the client certificate";

Error unusable(std::string_view what, const std::string& path, const error_code& failure) {
    return {Errc::invalid_argument, cat(what, " ", path, ": ", failure.message())};
}

/// OpenSSL would wait for a pipe's writer for ever. A missing file is reported by OpenSSL itself.
Result<void> check_kind(std::string_view what, const std::string& path) {
    error_code unknown;
    const auto kind = std::filesystem::status(path, unknown).type();
    if (unknown || kind == std::filesystem::file_type::regular) return {};
    return Error{Errc::invalid_argument,
                 cat(what, " ", path, ": not a regular file; write the text to a file and name that file")};
}

/// Checks the client certificate here, because the server reports only that it is bad.
Result<void> check_dates(SSL_CTX* context, const std::string& path) {
    const X509* own = ::SSL_CTX_get0_certificate(context);
    if (own == nullptr) return {};
    if (::X509_cmp_current_time(::X509_get0_notAfter(own)) < 0)
        return Error{Errc::invalid_argument, cat("the client certificate ", path, " has expired; renew it")};
    if (::X509_cmp_current_time(::X509_get0_notBefore(own)) > 0)
        return Error{Errc::invalid_argument,
                     cat("the client certificate ", path, " is not valid yet; check this host's clock")};
    return {};
}

}  // namespace

Result<std::unique_ptr<ssl::context>> make_tls_context(const TlsFiles& files) {
    for (const auto& [what, path] :
         {std::pair{ca_file, &files.ca}, {certificate_file, &files.certificate}, {key_file, &files.key}})
        if (auto checked = check_kind(what, *path); !path->empty() && !checked) return checked.error();
    auto context = std::make_unique<ssl::context>(ssl::context::tls_client);
    error_code failure;
    context->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 | ssl::context::no_sslv3 |
                             ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1,
                         failure);
    context->set_verify_mode(ssl::verify_peer, failure);
    if (files.ca.empty())
        context->set_default_verify_paths(failure);
    else
        context->load_verify_file(files.ca, failure);
    if (failure) return unusable(ca_file, files.ca, failure);
    if (files.certificate.empty()) return context;
    context->use_certificate_chain_file(files.certificate, failure);
    if (failure) return unusable(certificate_file, files.certificate, failure);
    context->use_private_key_file(files.key, ssl::context::pem, failure);
    if (failure) return unusable(key_file, files.key, failure);
    if (auto dated = check_dates(context->native_handle(), files.certificate); !dated) return dated.error();
    return context;
}

bool CertificateCheck::operator()(bool accepted, ssl::verify_context& chain) {
    if (accepted) {
        if (ssl::host_name_verification(host_)(true, chain)) return true;
        objection_ = cat("the server's certificate is not valid for the name ", host_);
        return false;
    }
    switch (const int reason = ::X509_STORE_CTX_get_error(chain.native_handle())) {
        case X509_V_ERR_CERT_HAS_EXPIRED: objection_ = "the server's certificate has expired"; break;
        case X509_V_ERR_CERT_NOT_YET_VALID:
            objection_ = "the server's certificate is not valid yet; check this host's clock";
            break;
        case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
        case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
        case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
        case X509_V_ERR_CERT_SIGNATURE_FAILURE:
            objection_ =
                cat("the server's certificate is not signed by a CA ",
                    ca_.empty() ? "that this host trusts" : cat("in ", ca_), "; set cacert to the file of its CA");
            break;
        default:
            objection_ = cat("the server's certificate is not accepted: ", ::X509_verify_cert_error_string(reason));
    }
    return false;
}

std::string describe_tls(const error_code& failure) {
    if (failure.category() != boost::asio::error::get_ssl_category()) return failure.message();
    switch (ERR_GET_REASON(static_cast<unsigned long>(failure.value()))) {
        case SSL_R_WRONG_VERSION_NUMBER:
        case SSL_R_HTTP_REQUEST:
        case SSL_R_PACKET_LENGTH_TOO_LONG: return "the server does not use TLS on this port; set protocol http";
        case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
            return cat("the server requires a client certificate (cert and key): ", failure.message());
        case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
        case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
        case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
        case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
        case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
        case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
            return cat("the server does not accept the client certificate (cert and key): ", failure.message());
        default: return failure.message();
    }
}

}  // namespace muster::rendezvous
