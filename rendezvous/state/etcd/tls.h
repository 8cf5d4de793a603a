// TLS for the connection to a server: the context and readable errors. The server's certificate and host name are
// always verified; a client certificate is sent if the server requests one.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/verify_context.hpp>
#include <boost/system/error_code.hpp>
#include <memory>
#include <string>

#include "rendezvous/base/error.h"
#include "rendezvous/state/etcd/etcd_place.h"

namespace muster::rendezvous {

/// Reads the files. Errors name the file: it is not readable, holds no certificate or key, the key belongs to another
/// certificate, or the client certificate has expired or is not valid yet.
Result<std::unique_ptr<boost::asio::ssl::context>> make_tls_context(const TlsFiles& files);

/// Verifies the server's certificate and keeps the reason of a refusal.
class CertificateCheck {
  public:
    /// `ca`: the CA file, for the message.
    CertificateCheck(std::string host, std::string ca) : host_(std::move(host)), ca_(std::move(ca)) {}
    bool operator()(bool accepted, boost::asio::ssl::verify_context& chain);
    /// Empty: the certificate was accepted or not checked yet.
    [[nodiscard]] const std::string& objection() const { return objection_; }

  private:
    std::string host_;
    std::string ca_;
    std::string objection_;
};

/// Explains a failure of a TLS stream; for other errors, returns the system's text.
std::string describe_tls(const boost::system::error_code& failure);

}  // namespace muster::rendezvous
