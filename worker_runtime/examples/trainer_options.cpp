#include "worker_runtime/examples/trainer_options.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

constexpr std::uint64_t most = 1'000'000'000;

bool parse_count(const std::string& text, std::uint64_t& value) {
    return parse_number(text, value) && value >= 1 && value <= most;
}

bool parse_decimal(const std::string& text, double lowest, double highest, double& value) {
    char* end = nullptr;
    value = std::strtod(text.c_str(), &end);
    return !text.empty() && end == text.c_str() + text.size() && value >= lowest && value <= highest;
}

bool take_text(const std::string& text, std::string& value) {
    value = text;
    return !text.empty();
}

bool take_wire(const std::string& text, WireFormat& value) {
    constexpr std::array names{"same", "bf16", "f16", "int8", "power"};
    const auto* const found = std::find(names.begin(), names.end(), text);
    value = static_cast<WireFormat>(found - names.begin());
    return found != names.end();
}

struct Option {
    const char* name;
    const char* accepted;
    const char* meaning;
    bool (*take)(const std::string& value, TrainerOptions& options);
};

constexpr std::array options_known{
    Option{"--data", "a file", "the digits, 65 numbers per line (worker_runtime/examples/data/digits.csv)",
           [](const auto& value, auto& to) { return take_text(value, to.data); }},
    Option{"--epochs", "a count", "passes over the training digits (30)",
           [](const auto& value, auto& to) { return parse_count(value, to.plan.epochs); }},
    Option{"--batch", "a count", "digits per step over all ranks (96)",
           [](const auto& value, auto& to) { return parse_count(value, to.plan.batch_size); }},
    Option{"--learning-rate", "a number above 0", "learning rate (0.1)",
           [](const auto& value, auto& to) { return parse_decimal(value, 1e-9, 1e3, to.plan.learning_rate); }},
    Option{"--momentum", "a number of 0 to 0.999", "momentum (0.9)",
           [](const auto& value, auto& to) { return parse_decimal(value, 0, 0.999, to.plan.momentum); }},
    Option{"--checkpoint-dir", "a folder",
           "where checkpoints are; continues from the newest (MUSTER_CHECKPOINT_DIR, else none)",
           [](const auto& value, auto& to) { return take_text(value, to.checkpoint_dir); }},
    Option{"--checkpoint-every", "a count", "steps between two checkpoints (50)",
           [](const auto& value, auto& to) { return parse_count(value, to.plan.checkpoint_every); }},
    Option{"--snapshot-every", "a count", "steps between two snapshots in the agent's memory (1)",
           [](const auto& value, auto& to) { return parse_count(value, to.plan.snapshot_every); }},
    Option{"--wire", "same, bf16, f16, int8 or power", "gradient format between ranks (same)",
           [](const auto& value, auto& to) { return take_wire(value, to.plan.wire); }},
    Option{"--leave-at-step", "a count", "save after this step and exit with 76, as after a preemption notice (never)",
           [](const auto& value, auto& to) { return parse_count(value, to.plan.leave_at_step); }},
    Option{"--losses", "a file", "rank 0 appends one line per step: number and loss (none)",
           [](const auto& value, auto& to) { return take_text(value, to.losses); }},
    Option{"--steps-taken", "a file", "each rank appends one line per step: round, rank and step (none)",
           [](const auto& value, auto& to) { return take_text(value, to.steps_taken); }},
    Option{"--accuracy-min", "percent", "exit code 1 if the test accuracy is lower (0)",
           [](const auto& value, auto& to) { return parse_decimal(value, 0, 100, to.accuracy_min); }},
    Option{"--die-at-step", "a count", "the last rank kills itself before this step, to show a restart (never)",
           [](const auto& value, auto& to) { return parse_count(value, to.die_at_step); }},
    Option{"--die-once", "a file", "created at the kill; while it exists, no rank kills itself (required above)",
           [](const auto& value, auto& to) { return take_text(value, to.die_once); }},
    Option{"--pause-file", "a file", "while it exists, every rank waits the milliseconds in it before each step (none)",
           [](const auto& value, auto& to) { return take_text(value, to.pause_file); }},
    Option{"--recover", "restart or in-process",
           "what survivors of a failed round do: all are started again, or they stay (restart)",
           [](const auto& value, auto& to) {
               to.in_process = value == "in-process";
               return to.in_process || value == "restart";
           }},
};

Error usage(const std::string& text) {
    return {Errc::invalid_argument, cat(text, "; see digits_trainer --help")};
}

}  // namespace

Result<TrainerOptions> parse_trainer_options(const std::vector<std::string>& arguments) {
    TrainerOptions options;
    if (const char* const given = std::getenv("MUSTER_CHECKPOINT_DIR")) options.checkpoint_dir = given;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        auto name = arguments[i];
        if (name == "--help" || name == "-h") {
            options.help = true;
            continue;
        }
        const auto equals = name.find('=');
        const Option* known = nullptr;
        for (const auto& option : options_known)
            if (name.substr(0, equals) == option.name) known = &option;
        if (known == nullptr) return usage(cat("unknown option '", name, "'"));
        if (equals == std::string::npos && i + 1 == arguments.size())
            return usage(cat(name, " needs ", known->accepted));
        const auto value = equals == std::string::npos ? arguments[++i] : name.substr(equals + 1);
        if (!known->take(value, options)) return usage(cat(known->name, " is '", value, "', not ", known->accepted));
    }
    if ((options.die_at_step > 0) != !options.die_once.empty())
        return usage("--die-at-step and --die-once need each other: without the file every round would fail");
    return options;
}

std::string trainer_help() {
    std::string text =
        "digits_trainer: trains a small network on hand-written digits, data-parallel under muster or torchrun.\n"
        "\n  muster --nproc-per-node=2 --max-restarts=3 --checkpoint-dir ckpt digits_trainer\n\n";
    for (const auto& option : options_known) {
        const auto left = cat("  ", option.name, " ", option.accepted);
        text += cat(left, std::string(left.size() < 40 ? 40 - left.size() : 1, ' '), option.meaning, "\n");
    }
    return text;
}

}  // namespace muster::runtime
