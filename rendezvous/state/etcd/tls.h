// TLS to a server: what is given for it, and what went wrong with it in words. The certificates of both sides are
// checked: the server's always, against its name too; ours where the server asks for one.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/verify_context.hpp>
#include <boost/system/error_code.hpp>
#include <memory>
#include <string>

#include "rendezvous/base/error.h"
#include "rendezvous/state/etcd/etcd_place.h"

namespace muster::rendezvous {

/// Reads the files. Errors name the file: not readable, no certificate or key in it, a key of another certificate, a
/// certificate of ours that has expired or is not valid yet.
Result<std::unique_ptr<boost::asio::ssl::context>> make_tls_context(const TlsFiles& files);

/// Decides about the server's certificate, and remembers in words why not.
class CertificateCheck {
  public:
    /// `ca`: the file that vouches for it, for the words.
    CertificateCheck(std::string host, std::string ca) : host_(std::move(host)), ca_(std::move(ca)) {}
    bool operator()(bool accepted, boost::asio::ssl::verify_context& chain);
    /// Empty: it was accepted, or never seen.
    [[nodiscard]] const std::string& objection() const { return objection_; }

  private:
    std::string host_;
    std::string ca_;
    std::string objection_;
};

/// What a failure of a TLS stream means; the system's own words where it is none of TLS.
std::string describe_tls(const boost::system::error_code& failure);

}  // namespace muster::rendezvous
