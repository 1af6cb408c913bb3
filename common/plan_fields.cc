// The one list of plan fields. A field is a line of kFields; the templates above it say how each
// kind of value is parsed and printed.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/numbers.h"
#include "common/plan.h"
#include "common/status_macros.h"
#include "common/suggest.h"
#include "common/words.h"
#include "nlohmann/json.hpp"

namespace lastflop {
namespace {

using Json = nlohmann::json;

absl::Status Refuse(absl::string_view text, absl::string_view accepted) {
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" must be ", accepted));
}

// ---- Whole numbers, numbers, truth values ----

template <auto kMember, int64_t kLeast>
absl::Status SetInteger(absl::string_view text, Plan& plan) {
  LASTFLOP_ASSIGN_OR_RETURN(const int64_t value, ParseInteger(text));
  if (value < kLeast) {
    return Refuse(text, absl::StrCat("an integer >= ", kLeast));
  }
  kMember(plan) = value;
  return absl::OkStatus();
}

template <auto kMember>
std::string GetInteger(const Plan& plan) {
  return absl::StrCat(kMember(plan));
}

constexpr double kMostOfANumber = 1e6;  // Microseconds, or steps that a draft costs.

template <auto kMember>
absl::Status SetNonNegative(absl::string_view text, Plan& plan) {
  LASTFLOP_ASSIGN_OR_RETURN(const double value, ParseNumber(text));
  if (value < 0 || value > kMostOfANumber) {
    return Refuse(text, "a number from 0 to 1000000");
  }
  kMember(plan) = value;
  return absl::OkStatus();
}

template <auto kMember>
absl::Status SetShare(absl::string_view text, Plan& plan) {
  LASTFLOP_ASSIGN_OR_RETURN(const double value, ParseNumber(text));
  if (value < 0 || value > 1) {
    return Refuse(text, "a number in [0, 1]");
  }
  kMember(plan) = value;
  return absl::OkStatus();
}

template <auto kMember>
std::string GetNumber(const Plan& plan) {
  return NumberText(kMember(plan));
}

template <auto kMember>
absl::Status SetBool(absl::string_view text, Plan& plan) {
  if (text != "true" && text != "false") {
    return Refuse(text, "true or false");
  }
  kMember(plan) = text == "true";
  return absl::OkStatus();
}

template <auto kMember>
std::string GetBool(const Plan& plan) {
  return kMember(plan) ? "true" : "false";
}

template <auto kMember>
absl::Status SetText(absl::string_view text, Plan& plan) {
  kMember(plan) = std::string(text);
  return absl::OkStatus();
}

template <auto kMember>
std::string GetText(const Plan& plan) {
  return kMember(plan);
}

// ---- Words ----

template <typename E>
absl::Status UnknownWord(absl::string_view text, absl::string_view instead = "one of ") {
  std::vector<absl::string_view> words;
  for (const auto& [value, word] : EnumWords<E>::kWords) {
    words.push_back(word);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" must be ", instead, AllWords<E>(), DidYouMean(text, words)));
}

template <auto kMember>
absl::Status SetWord(absl::string_view text, Plan& plan) {
  auto& member = kMember(plan);
  using E = std::remove_reference_t<decltype(member)>;
  const std::optional<E> value = FromWord<E>(text);
  if (!value.has_value()) {
    return UnknownWord<E>(text);
  }
  member = *value;
  return absl::OkStatus();
}

template <auto kMember>
std::string GetWord(const Plan& plan) {
  return std::string(ToWord(kMember(plan)));
}

// The words that NCCL itself reads (without regard to case); "auto" leaves the choice to it.
constexpr std::array<absl::string_view, 8> kNcclAlgorithms = {
    "auto", "ring", "tree", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"};
constexpr std::array<absl::string_view, 4> kNcclProtocols = {"auto", "ll", "ll128", "simple"};

template <auto kMember, const auto& kWords>
absl::Status SetNcclWord(absl::string_view text, Plan& plan) {
  for (const absl::string_view word : kWords) {
    if (text == word) {
      kMember(plan) = text == "auto" ? "" : std::string(text);
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" must be one of ",
                                                 absl::StrJoin(kWords, ", "),
                                                 DidYouMean(text, {kWords.begin(), kWords.end()})));
}

template <auto kMember>
std::string GetNcclWord(const Plan& plan) {
  return kMember(plan).empty() ? "auto" : kMember(plan);
}

// ---- Fields with a form of their own ----

constexpr absl::string_view kAsModel = "model";

absl::Status SetWeights(absl::string_view text, Plan& plan) {
  if (text == kAsModel) {
    plan.moe.weights.reset();
    return absl::OkStatus();
  }
  const std::optional<WeightFormat> format = FromWord<WeightFormat>(text);
  if (!format.has_value()) {
    return UnknownWord<WeightFormat>(text, absl::StrCat(kAsModel, " or one of "));
  }
  plan.moe.weights = *format;
  return absl::OkStatus();
}

std::string GetWeights(const Plan& plan) {
  return std::string(plan.moe.weights.has_value() ? ToWord(*plan.moe.weights) : kAsModel);
}

constexpr absl::string_view kPluginPrefix = "plugin:";

absl::Status SetKernel(absl::string_view text, Plan& plan) {
  absl::string_view plugin = text;
  if (absl::ConsumePrefix(&plugin, kPluginPrefix)) {
    for (const char c : plugin) {
      if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-') {
        return Refuse(text, "plugin:NAME with letters, digits, - and _");
      }
    }
    if (plugin.empty()) {
      return Refuse(text, "plugin:NAME");
    }
    plan.moe.kernel = MoeKernel::kPlugin;
    plan.moe.plugin = std::string(plugin);
    return absl::OkStatus();
  }
  const std::optional<MoeKernel> kernel = FromWord<MoeKernel>(text);
  if (kernel == MoeKernel::kPlugin) {
    return Refuse(text, "plugin:NAME");
  }
  if (!kernel.has_value()) {
    return UnknownWord<MoeKernel>(text);
  }
  plan.moe.kernel = *kernel;
  plan.moe.plugin.clear();
  return absl::OkStatus();
}

std::string GetKernel(const Plan& plan) {
  return plan.moe.kernel == MoeKernel::kPlugin ? absl::StrCat(kPluginPrefix, plan.moe.plugin)
                                               : std::string(ToWord(plan.moe.kernel));
}

// A pin is off at share 0. Both settings may come first, so one that says nothing is dropped only
// when the other says nothing either.
void StorePin(const L2Pin& pin, Plan& plan) {
  plan.moe.l2_pin = pin;
  if (pin == L2Pin{}) {
    plan.moe.l2_pin.reset();
  }
}

absl::Status SetPinShare(absl::string_view text, Plan& plan) {
  LASTFLOP_ASSIGN_OR_RETURN(const double share, ParseNumber(text));
  if (share < 0 || share > 1) {
    return Refuse(text, "a number in [0, 1], where 0 is no pin");
  }
  L2Pin pin = plan.moe.l2_pin.value_or(L2Pin{});
  pin.share = share;
  StorePin(pin, plan);
  return absl::OkStatus();
}

std::string GetPinShare(const Plan& plan) {
  return NumberText(plan.moe.l2_pin.value_or(L2Pin{}).share);
}

absl::Status SetPinSelect(absl::string_view text, Plan& plan) {
  const std::optional<PinSelect> select = FromWord<PinSelect>(text);
  if (!select.has_value()) {
    return UnknownWord<PinSelect>(text);
  }
  L2Pin pin = plan.moe.l2_pin.value_or(L2Pin{});
  pin.select = *select;
  StorePin(pin, plan);
  return absl::OkStatus();
}

std::string GetPinSelect(const Plan& plan) {
  return std::string(ToWord(plan.moe.l2_pin.value_or(L2Pin{}).select));
}

constexpr absl::string_view kTopK = "top_k";
constexpr absl::string_view kOpportunisticPrefix = "opportunistic:";
constexpr absl::string_view kExpertActivations = "top_k or opportunistic:KEEP with KEEP >= 1";

absl::Status SetExpertActivation(absl::string_view text, Plan& plan) {
  if (text == kTopK) {
    plan.moe.opportunistic_keep = 0;
    return absl::OkStatus();
  }
  absl::string_view keep_text = text;
  if (!absl::ConsumePrefix(&keep_text, kOpportunisticPrefix)) {
    return Refuse(text, kExpertActivations);
  }
  LASTFLOP_ASSIGN_OR_RETURN(const int64_t keep, ParseInteger(keep_text));
  if (keep < 1) {
    return Refuse(text, kExpertActivations);
  }
  plan.moe.opportunistic_keep = keep;
  return absl::OkStatus();
}

std::string GetExpertActivation(const Plan& plan) {
  return plan.moe.opportunistic_keep == 0
             ? std::string(kTopK)
             : absl::StrCat(kOpportunisticPrefix, plan.moe.opportunistic_keep);
}

bool IsSameKernel(const Plan& a, const Plan& b) {
  return a.moe.kernel == b.moe.kernel && a.moe.plugin == b.moe.plugin;
}

constexpr absl::string_view kSingleBatchPrefix = "single_batch:";

absl::Status SetOverlap(absl::string_view text, Plan& plan) {
  absl::string_view sms_text = text;
  if (absl::ConsumePrefix(&sms_text, kSingleBatchPrefix)) {
    LASTFLOP_ASSIGN_OR_RETURN(const int64_t sms, ParseInteger(sms_text));
    if (sms < 0) {
      return Refuse(text,
                    "single_batch:SMS with SMS >= 0, where 0 leaves the choice to the kernel");
    }
    plan.overlap = Overlap::kSingleBatch;
    plan.overlap_sms = sms;
    return absl::OkStatus();
  }
  const std::optional<Overlap> overlap = FromWord<Overlap>(text);
  if (!overlap.has_value()) {
    return UnknownWord<Overlap>(text);
  }
  plan.overlap = *overlap;
  plan.overlap_sms = 0;
  return absl::OkStatus();
}

std::string GetOverlap(const Plan& plan) {
  return plan.overlap == Overlap::kSingleBatch ? absl::StrCat(kSingleBatchPrefix, plan.overlap_sms)
                                               : std::string(ToWord(plan.overlap));
}

bool IsSameOverlap(const Plan& a, const Plan& b) {
  return a.overlap == b.overlap && a.overlap_sms == b.overlap_sms;
}

absl::Status SetEnvironment(absl::string_view text, Plan& plan) {
  constexpr absl::string_view kAccepted = "a map of variable names to text";
  const Json json = Json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return Refuse(text, kAccepted);
  }
  std::map<std::string, std::string> environment;
  for (const auto& [name, value] : json.items()) {
    if (!value.is_string() || name.empty() || absl::StrContains(name, "=")) {
      return Refuse(text, kAccepted);
    }
    environment[name] = value.get<std::string>();
  }
  plan.process_env = std::move(environment);
  return absl::OkStatus();
}

std::string GetEnvironment(const Plan& plan) {
  Json json = Json::object();
  for (const auto& [name, value] : plan.process_env) {
    json[name] = value;
  }
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

// ---- The table ----

// The member that a line of the table reads and writes.
#define LASTFLOP_MEMBER(member) \
  [](auto& plan) -> auto& { return plan.member; }

template <auto kMember>
bool IsSame(const Plan& a, const Plan& b) {
  return kMember(a) == kMember(b);
}

template <auto kMember, int64_t kLeast>
constexpr PlanField Integer(absl::string_view path) {
  static_assert(kLeast == 0 || kLeast == 1);
  return {path, kLeast == 0 ? "an integer >= 0" : "an integer >= 1", &SetInteger<kMember, kLeast>,
          &GetInteger<kMember>, &IsSame<kMember>};
}

template <auto kMember>
constexpr PlanField NonNegative(absl::string_view path) {
  return {path, "a number from 0 to 1000000", &SetNonNegative<kMember>, &GetNumber<kMember>,
          &IsSame<kMember>};
}

template <auto kMember>
constexpr PlanField Share(absl::string_view path) {
  return {path, "a number in [0, 1]", &SetShare<kMember>, &GetNumber<kMember>, &IsSame<kMember>};
}

template <auto kMember>
constexpr PlanField Bool(absl::string_view path) {
  return {path, "true or false", &SetBool<kMember>, &GetBool<kMember>, &IsSame<kMember>};
}

template <auto kMember>
constexpr PlanField Text(absl::string_view path, absl::string_view values) {
  return {path, values, &SetText<kMember>, &GetText<kMember>, &IsSame<kMember>};
}

template <auto kMember>
constexpr PlanField Word(absl::string_view path, absl::string_view words) {
  return {path, words, &SetWord<kMember>, &GetWord<kMember>, &IsSame<kMember>};
}

template <auto kMember, const auto& kWords>
constexpr PlanField NcclWord(absl::string_view path, absl::string_view words) {
  return {path, words, &SetNcclWord<kMember, kWords>, &GetNcclWord<kMember>, &IsSame<kMember>};
}

constexpr PlanField kFields[] = {
    Integer<LASTFLOP_MEMBER(parallel.tensor), 1>("parallel.tensor"),
    Integer<LASTFLOP_MEMBER(parallel.expert), 1>("parallel.expert"),
    Integer<LASTFLOP_MEMBER(parallel.data), 1>("parallel.data"),
    Integer<LASTFLOP_MEMBER(parallel.pipeline), 1>("parallel.pipeline"),
    Word<LASTFLOP_MEMBER(parallel.attention)>("parallel.attention", "tensor or data"),
    Integer<LASTFLOP_MEMBER(parallel.micro_batches), 1>("parallel.micro_batches"),
    {"moe.weights", "model, bf16, fp8_block, fp8, int4_g32, int4_g128, nvfp4, mxfp4 or int4_g32_24",
     &SetWeights, &GetWeights, &IsSame<LASTFLOP_MEMBER(moe.weights)>},
    Word<LASTFLOP_MEMBER(moe.activations)>("moe.activations", "bf16, fp8 or nvfp4"),
    Word<LASTFLOP_MEMBER(moe.dequant)>("moe.dequant", "fused or separate"),
    {"moe.kernel", "reference, grouped, fused, cutlass, cublaslt or plugin:NAME", &SetKernel,
     &GetKernel, &IsSameKernel},
    Word<LASTFLOP_MEMBER(moe.tile_order)>("moe.tile_order", "row_major or column_major"),
    Integer<LASTFLOP_MEMBER(moe.group_m), 0>("moe.group_m"),
    {"moe.l2_pin.share", "a number in [0, 1], where 0 is no pin", &SetPinShare, &GetPinShare,
     &IsSame<LASTFLOP_MEMBER(moe.l2_pin)>},
    {"moe.l2_pin.select", "popularity or random", &SetPinSelect, &GetPinSelect,
     &IsSame<LASTFLOP_MEMBER(moe.l2_pin)>},
    Word<LASTFLOP_MEMBER(moe.cache_hint)>("moe.cache_hint", "none, evict_first or evict_last"),
    {"moe.expert_activation", kExpertActivations, &SetExpertActivation, &GetExpertActivation,
     &IsSame<LASTFLOP_MEMBER(moe.opportunistic_keep)>},
    Integer<LASTFLOP_MEMBER(moe.redundant_experts), 0>("moe.redundant_experts"),
    Word<LASTFLOP_MEMBER(collectives.all_reduce)>("collectives.all_reduce",
                                                  "auto, nccl, one_shot, two_shot or ring"),
    NcclWord<LASTFLOP_MEMBER(collectives.nccl.algorithm), kNcclAlgorithms>(
        "collectives.nccl.algorithm",
        "auto, ring, tree, collnetdirect, collnetchain, nvls, nvlstree or pat"),
    NcclWord<LASTFLOP_MEMBER(collectives.nccl.protocol), kNcclProtocols>(
        "collectives.nccl.protocol", "auto, ll, ll128 or simple"),
    Integer<LASTFLOP_MEMBER(collectives.nccl.channels), 0>("collectives.nccl.channels"),
    Bool<LASTFLOP_MEMBER(collectives.fuse_norm)>("collectives.fuse_norm"),
    Bool<LASTFLOP_MEMBER(collectives.fuse_finalize)>("collectives.fuse_finalize"),
    Word<LASTFLOP_MEMBER(collectives.payload)>("collectives.payload", "bf16, fp8 or nvfp4"),
    Word<LASTFLOP_MEMBER(collectives.all_to_all)>("collectives.all_to_all", "nccl or p2p"),
    Word<LASTFLOP_MEMBER(attention_cache)>("attention.cache", "bf16 or fp8"),
    Word<LASTFLOP_MEMBER(launch.graph)>("launch.graph", "none, piecewise or full"),
    Bool<LASTFLOP_MEMBER(launch.dependent)>("launch.dependent"),
    Integer<LASTFLOP_MEMBER(launch.steps), 1>("launch.steps"),
    NonNegative<LASTFLOP_MEMBER(launch.host_us_per_launch)>("launch.host_us_per_launch"),
    NonNegative<LASTFLOP_MEMBER(launch.host_us_per_step)>("launch.host_us_per_step"),
    {"overlap", "none, single_batch:SMS, two_batch or prefill_decode", &SetOverlap, &GetOverlap,
     &IsSameOverlap},
    Integer<LASTFLOP_MEMBER(speculative.draft_tokens), 0>("decode.speculative.draft_tokens"),
    Share<LASTFLOP_MEMBER(speculative.acceptance)>("decode.speculative.acceptance"),
    NonNegative<LASTFLOP_MEMBER(speculative.draft_cost)>("decode.speculative.draft_cost"),
    {"process.env", "a map of variable names to text", &SetEnvironment, &GetEnvironment,
     &IsSame<LASTFLOP_MEMBER(process_env)>},
    Text<LASTFLOP_MEMBER(engine)>("engine.command", "a command"),
    Text<LASTFLOP_MEMBER(engine_result)>("engine.result",
                                         "a JSON pointer into the command's output"),
};

#undef LASTFLOP_MEMBER

}  // namespace

std::span<const PlanField> PlanFields() { return kFields; }

}  // namespace lastflop
