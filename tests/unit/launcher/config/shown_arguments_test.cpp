#include "launcher/config/shown_arguments.h"

#include "rendezvous/wire/native/limits.h"
#include "tests/support/catch.h"

using muster::launcher::shown_arguments;

TEST_CASE("arguments are shown as a shell takes them, and hashed with the program's name") {
    const auto shown = shown_arguments("train.py", {"--lr", "0.1", "a b", ""});
    CHECK(shown.text == "--lr 0.1 'a b' ''");
    CHECK(shown.hash != 0);
    CHECK(shown.hash == shown_arguments("train.py", {"--lr", "0.1", "a b", ""}).hash);
    CHECK(shown.hash != shown_arguments("eval.py", {"--lr", "0.1", "a b", ""}).hash);
    CHECK(shown.hash != shown_arguments("train.py", {"--lr", "0.2", "a b", ""}).hash);
    // Where a word ends counts.
    CHECK(shown_arguments("t", {"ab", "c"}).hash != shown_arguments("t", {"a", "bc"}).hash);
    // The same on every host, whatever it was built with.
    CHECK(shown_arguments("t", {}).hash == 0x08c81007b56a7af9U);
}

TEST_CASE("secrets are neither shown nor part of the hash") {
    const auto shown = [](std::vector<std::string> words) { return shown_arguments("t", words).text; };
    CHECK(shown({"--hub-token", "hf_1", "--lr", "1"}) == "--hub-token *** --lr 1");
    CHECK(shown({"--hub_token=hf_1"}) == "--hub_token=***");
    CHECK(shown({"HF_TOKEN=hf_1", "wandb.api_key=x"}) == "HF_TOKEN=*** wandb.api_key=***");
    CHECK(shown({"--password", "--verbose"}) == "--password --verbose");  // a flag
    CHECK(shown({"--password", "-x"}) == "--password ***");
    CHECK(shown({"s3://me:pw@host/x@y", "http://host/a@b"}) == "s3://***@host/x@y http://host/a@b");
    CHECK(shown({"--tokenizer", "gpt2", "--max-tokens=5", "--key", "name", "x=1"}) ==
          "--tokenizer gpt2 --max-tokens=5 --key name x=1");
    CHECK(shown_arguments("t", {"--api-key", "a"}).hash == shown_arguments("t", {"--api-key", "b"}).hash);
    CHECK(shown_arguments("t", {"--max-tokens", "1"}).hash != shown_arguments("t", {"--max-tokens", "2"}).hash);
}

TEST_CASE("arguments stay on one line, without control characters, and within the limit") {
    CHECK(shown_arguments("t", {"a\nb\x1b[31m\x7f",
                                "\xc2\x9b"
                                "31m"})
              .text == "'a\\x0ab\\x1b[31m\\x7f' '\\xc2\\x9b31m'");
    CHECK(shown_arguments("t", {"\xc3\xa4"}).text == "\xc3\xa4");
    const std::string long_word(muster::native::arguments_bytes_max - 1, 'x');
    const auto cut = shown_arguments("t", {long_word + "\xc3\xa4", "--lr"});
    CHECK(cut.text == long_word);  // not within a character
    CHECK(cut.hash != shown_arguments("t", {long_word + "\xc3\xa4", "--xx"}).hash);
}
