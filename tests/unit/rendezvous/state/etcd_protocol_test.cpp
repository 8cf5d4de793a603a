#include "rendezvous/state/etcd/etcd_protocol.h"

#include <filesystem>
#include <fstream>

#include "rendezvous/base/text/text.h"
#include "rendezvous/state/kept/open_state.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::rendezvous;

TEST_CASE("base64 of any bytes comes back, and what is none is refused") {
    std::string bytes;
    for (int length = 0; length < 300; ++length) {
        CHECK(from_base64(to_base64(bytes)) == bytes);
        bytes += static_cast<char>(length * 7);
    }
    CHECK(to_base64("muster/") == "bXVzdGVyLw==");
    for (const auto* wrong : {"a", "ab=c", "a===", "ab c", "====", "=abc"}) CHECK_FALSE(from_base64(wrong).has_value());
}

TEST_CASE("the range of a prefix ends behind all that begin with it") {
    CHECK(range_end("muster/") == "muster0");
    CHECK(range_end("a\xff") == "b");
    CHECK(range_end("\xff\xff").empty());
}

TEST_CASE("requests are what etcd's gateway expects") {
    Transaction write;
    write.compare = {{"k", Compare::Target::created, 7}};
    write.then = {Put{"k", "v", 9}, Erase{"a", "b"}};
    write.otherwise = {"k"};
    CHECK(encode(write).path == "/v3/kv/txn");
    CHECK(encode(write).body ==
          R"({"compare":[{"create_revision":"7","key":"aw==","result":"EQUAL","target":"CREATE"}],)"
          R"("failure":[{"request_range":{"key":"aw=="}}],)"
          R"("success":[{"request_put":{"key":"aw==","lease":"9","value":"dg=="}},)"
          R"({"request_delete_range":{"key":"YQ==","range_end":"Yg=="}}]})");
    CHECK(encode(ReadKeys{"a", "b", 5, 3}).body == R"({"key":"YQ==","limit":"5","range_end":"Yg==","revision":"3"})");
}

TEST_CASE("answers of etcd 3.4 are understood, with the fields that it leaves out") {
    const auto lease = decode_answer(KeepLease{5}, 200, R"({"result":{"header":{"revision":"4"},"ID":"5","TTL":"2"}})");
    CHECK(std::get<LeaseReply>(*lease).ttl_s == 2);
    const auto gone = decode_answer(KeepLease{5}, 200, R"({"result":{"header":{"revision":"4"},"ID":"5"}})");
    CHECK(std::get<LeaseReply>(*gone).ttl_s == 0);
    Transaction asked;
    asked.otherwise = {"k", "none"};
    const auto told = decode_answer(
        asked, 200,
        R"({"header":{"revision":"6"},"responses":[{"response_range":{"header":{"revision":"6"},"kvs":)"
        R"([{"key":"aw==","create_revision":"3","mod_revision":"5","version":"2","value":"dg=="}],"count":"1"}},)"
        R"({"response_range":{"header":{"revision":"6"}}}]})");
    const auto& transaction = std::get<TransactionReply>(*told);
    CHECK_FALSE(transaction.succeeded);
    REQUIRE(transaction.read.size() == 2);
    CHECK(transaction.read[0]->created == 3);
    CHECK(transaction.read[0]->value == "v");
    CHECK_FALSE(transaction.read[1].has_value());
}

TEST_CASE("what is no answer to the question is refused") {
    const auto code = [](const EtcdRequest& asked, unsigned status, const std::string& body) {
        const auto answer = decode_answer(asked, status, body);
        return answer.has_error() ? answer.error().code : Errc::cancelled;
    };
    CHECK(code(GrantLease{2}, 400, R"({"error":"etcdserver: no leader","code":14})") == Errc::refused);
    CHECK(code(GrantLease{2}, 502, "<html>") == Errc::unreachable);
    CHECK(code(GrantLease{2}, 500, R"({"error":[1]})") == Errc::unreachable);
    CHECK(code(GrantLease{2}, 429, R"({"error":"etcdserver: too many requests","code":8})") == Errc::unreachable);
    for (const unsigned status : {429U, 503U})
        CHECK(code(Transaction{}, status, R"({"error":"etcdserver: mvcc: database space exceeded","code":8})") ==
              Errc::limit_exceeded);
    for (const auto* body : {"", "[]", "{}", R"({"ID":"x","TTL":"2"})", R"({"ID":{},"TTL":"2"})", R"({"ID":"5"})",
                             R"({"ID":"5","TTL":"-2"})", R"({"ID":"99999999999999999999","TTL":"2"})"})
        CHECK(code(GrantLease{2}, 200, body) == Errc::bad_frame);
    CHECK(code(KeepLease{5}, 200, R"({"result":{"ID":"6","TTL":"2"}})") == Errc::bad_frame);
    for (const auto* body : {R"({"header":{"revision":"0"}})", R"({"header":[],"kvs":[]})",
                             R"({"header":{"revision":"5"},"kvs":[{"key":"?"}]})",
                             R"({"header":{"revision":"5"},"kvs":[7]})", R"({"header":{"revision":"5"},"more":"yes"})"})
        CHECK(code(ReadKeys{"a", "b", 0, 0}, 200, body) == Errc::bad_frame);
    Transaction asked;
    asked.otherwise = {"k"};
    CHECK(code(asked, 200, R"({"header":{"revision":"6"},"responses":[]})") == Errc::bad_frame);
}

TEST_CASE("a place for the state that is none is refused") {
    for (const auto* place : {"paper", "sqlite:", "etcd:"})
        CHECK(open_state(place, {}, {}, {}, "", {}).error().code == Errc::invalid_argument);
}

TEST_CASE("a login that etcd's JSON cannot hold is refused when it is read") {
    const test::ScratchFolder folder;
    const auto path = folder / "login";
    const auto read = [&path](std::string_view text) {
        std::ofstream(path, std::ios::trunc) << text;
        std::filesystem::permissions(path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
        return read_etcd_login(path);
    };
    const auto login = read("root:p\xc3\xa4ss\n");
    REQUIRE(login.has_value());
    CHECK_FALSE(encode(Authenticate{login->user, login->password}).body.empty());
    const auto latin = read("root:p\xe4ss\n");  // as an editor writes it in Latin-1
    REQUIRE(latin.has_error());
    CHECK(latin.error().context ==
          cat("etcd's login file ", path, " is not in UTF-8; write USER:PASSWORD into it again in UTF-8"));
}
