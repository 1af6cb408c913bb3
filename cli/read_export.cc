#include "cli/read_export.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/read_file.h"
#include "common/status_macros.h"
#include "common/words.h"

namespace lastflop {
namespace {

using Json = nlohmann::json;

absl::Status Expected(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what, " was expected"));
}

// Reads members of one object; the first mistake is kept.
class Fields {
 public:
  Fields(const Json& json, std::string path) : json_(json), path_(std::move(path)) {
    if (!json.is_object()) {
      status_ = Expected(path_, "an object");
    }
  }

  std::string Text(const char* key) {
    const Json* value = Find(key);
    if (value != nullptr && !value->is_string()) Fail(key, "text");
    return value != nullptr && value->is_string() ? value->get<std::string>() : "";
  }
  // 0 where it is null.
  double Number(const char* key) {
    const Json* value = Find(key);
    if (value != nullptr && !value->is_number() && !value->is_null()) Fail(key, "a number");
    return value != nullptr && value->is_number() ? value->get<double>() : 0;
  }
  double NumberIn(const char* key, double least, double most) {
    const double number = Number(key);
    if (!(number >= least && number <= most)) {
      Fail(key, absl::StrCat("a number from ", least, " to ", most));
    }
    return number;
  }
  int64_t Integer(const char* key) {
    const Json* value = Find(key);
    if (value != nullptr && !value->is_number_integer()) Fail(key, "a whole number");
    return value != nullptr && value->is_number_integer() ? value->get<int64_t>() : 0;
  }
  // Of 64 bits: as text in decimal; earlier exports have a number.
  int64_t LongInteger(const char* key) {
    const Json* value = Find(key);
    if (value == nullptr || !value->is_string()) return Integer(key);
    int64_t parsed = 0;
    if (!absl::SimpleAtoi(value->get<std::string>(), &parsed)) Fail(key, "a whole number as text");
    return parsed;
  }
  // False where it is null.
  bool Bool(const char* key) {
    const Json* value = Find(key);
    if (value != nullptr && !value->is_boolean() && !value->is_null()) Fail(key, "true or false");
    return value != nullptr && value->is_boolean() && value->get<bool>();
  }
  template <typename E>
  E Word(const char* key, E fallback) {
    const std::optional<E> word = FromWord<E>(Text(key));
    if (!word.has_value()) Fail(key, AllWords<E>());
    return word.value_or(fallback);
  }
  template <typename E>
  std::optional<E> WordOrNull(const char* key) {
    const Json* value = Find(key);
    return value == nullptr || value->is_null() ? std::nullopt : std::optional(Word(key, E{}));
  }
  // The array, or an empty one with the mistake kept.
  const Json& Array(const char* key) {
    static const Json kNone = Json::array();
    const Json* value = Find(key);
    if (value != nullptr && !value->is_array()) Fail(key, "a list");
    return value != nullptr && value->is_array() ? *value : kNone;
  }
  const Json* Find(const char* key) {
    if (!json_.is_object()) return nullptr;
    const auto found = json_.find(key);
    if (found == json_.end()) {
      Fail(key, "a value");
      return nullptr;
    }
    return &*found;
  }
  bool Has(const char* key) const { return json_.is_object() && json_.contains(key); }
  void Keep(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }
  std::string PathOf(const char* key, size_t index) const {
    return absl::StrCat(path_, ".", key, "[", index, "]");
  }
  const absl::Status& status() const { return status_; }

 private:
  void Fail(const char* key, absl::string_view what) {
    Keep(Expected(absl::StrCat(path_, ".", key), what));
  }

  const Json& json_;  // Outlives this.
  const std::string path_;
  absl::Status status_;
};

absl::StatusOr<Point> ReadPoint(const Json& json, const std::string& path) {
  Fields fields(json, path);
  Point point;
  point.phase = fields.Word("phase", Phase::kDecode);
  point.batch = fields.Integer("batch");
  point.context = fields.Integer("context");
  point.time_share = fields.Number("time_share");
  const std::string label = fields.Text("point");
  LASTFLOP_RETURN_IF_ERROR(fields.status());
  if (const std::string untagged = absl::StrCat(point.Label(), " ");
      absl::StartsWith(label, untagged)) {
    point.tag = label.substr(untagged.size());
  }
  return point;
}

absl::Status ReadFailure(const Json& json, const std::string& path,
                         std::optional<Failure>& failure) {
  if (json.is_null()) {
    return absl::OkStatus();
  }
  Fields fields(json, path);
  failure = Failure{.kind = fields.Word("kind", FailureKind::kInternal),
                    .message = fields.Text("message")};
  return fields.status();
}

CheckResult ReadCheck(Fields& parent, const char* key) {
  CheckResult check{.ran = false};
  if (const Json* json = parent.Find(key); json != nullptr && !json->is_null()) {
    check.ran = true;
    Fields fields(*json, key);
    check.ok = fields.Bool("ok");
    check.max_error = fields.Number("max_error");
    check.tolerance = fields.Number("tolerance");
    check.detail = fields.Text("detail");
    parent.Keep(fields.status());
  }
  return check;
}

absl::StatusOr<AttemptRecord> ReadAttempt(const Json& json, const std::string& path,
                                          const std::string& trial_id) {
  Fields fields(json, path);
  AttemptRecord attempt;
  attempt.result.attempt_id = fields.Text("attempt_id");
  attempt.result.trial_id = trial_id;
  attempt.result.launch = static_cast<int>(fields.Integer("launch"));
  attempt.state = fields.Word("state", AttemptState::kDone);
  attempt.authoritative = fields.Bool("authoritative");
  attempt.has_report = fields.Bool("has_report");
  attempt.started_at_ms = fields.Integer("started_at_ms");
  attempt.result.fidelity = fields.Word("fidelity", Fidelity::kFull);
  attempt.result.check_before = ReadCheck(fields, "check_before");
  attempt.result.check_after = ReadCheck(fields, "check_after");
  if (const Json* failure = fields.Find("failure")) {
    fields.Keep(ReadFailure(*failure, path + ".failure", attempt.result.failure));
  }
  LASTFLOP_RETURN_IF_ERROR(fields.status());
  return attempt;
}

absl::Status AddSample(const Json& json, const std::string& path, CampaignResults& results,
                       size_t first_attempt) {
  Fields fields(json, path);
  const std::string attempt_id = fields.Text("attempt_id");
  PairSample sample;
  sample.pair.launch = static_cast<int>(fields.Integer("launch"));
  sample.pair.draw = fields.LongInteger("draw");
  sample.pair.baseline_us = fields.Number("baseline_us");
  sample.pair.variant_us = fields.Number("variant_us");
  sample.pair.throttled = fields.Bool("throttled");
  LASTFLOP_RETURN_IF_ERROR(fields.status());
  for (size_t i = first_attempt; i < results.attempts.size(); ++i) {
    if (results.attempts[i].result.attempt_id == attempt_id) {
      results.attempts[i].result.samples.push_back(sample);
      return absl::OkStatus();
    }
  }
  return Expected(path + ".attempt_id", "an attempt of this trial");
}

absl::Status ReadTrial(const Json& json, const std::string& path, CampaignResults& results) {
  Fields fields(json, path);
  TrialRecord trial;
  trial.spec.trial_id = fields.Text("trial_id");
  trial.spec.intervention_id = fields.Text("intervention");
  trial.spec.choice = fields.Text("choice");
  trial.state = fields.Word("state", TrialState::kDone);
  trial.reason = fields.Text("reason");
  trial.converged = fields.Bool("converged");
  trial.spec.settled = fields.WordOrNull<Standing>("settled");
  trial.spec.settled_reason = fields.Text("settled_reason");
  if (fields.Has("round")) {  // Exports from before there were rounds lack it.
    trial.spec.round = static_cast<int>(fields.Integer("round"));
    trial.spec.role = fields.Word("role", TrialRole::kCompare);
  }
  if (const Json* failure = fields.Find("failure")) {
    fields.Keep(ReadFailure(*failure, path + ".failure", trial.failure));
  }
  const std::string label = fields.Text("point");
  trial.spec.point_index = -1;
  for (size_t i = 0; i < results.campaign.points.size(); ++i) {
    if (results.campaign.points[i].Label() == label) {
      trial.spec.point_index = static_cast<int>(i);
    }
  }
  if (trial.spec.point_index < 0) {
    fields.Keep(Expected(path + ".point", "a point of the baseline"));
  }
  const size_t first_attempt = results.attempts.size();
  const Json& attempts = fields.Array("attempts");
  for (size_t i = 0; i < attempts.size(); ++i) {
    LASTFLOP_ASSIGN_OR_RETURN(
        AttemptRecord attempt,
        ReadAttempt(attempts[i], fields.PathOf("attempts", i), trial.spec.trial_id));
    results.attempts.push_back(std::move(attempt));
  }
  const Json& samples = fields.Array("samples");
  for (size_t i = 0; i < samples.size(); ++i) {
    LASTFLOP_RETURN_IF_ERROR(
        AddSample(samples[i], fields.PathOf("samples", i), results, first_attempt));
  }
  results.trials.push_back(std::move(trial));
  return fields.status();
}

}  // namespace

absl::StatusOr<ComparedCampaign> ParseExport(const std::string& text, const std::string& name) {
  const Json json = Json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": this is no JSON"));
  }
  if (!json.is_object() || !json.contains("trials")) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": no trials[] in it: `lastflop export` writes what campaigns are compared by"));
  }
  Fields fields(json, name);
  ComparedCampaign compared;
  CampaignResults& results = compared.results;
  results.campaign_id = fields.Text("campaign_id");
  results.campaign.name = fields.Text("campaign");
  results.state = fields.Word("state", CampaignState::kDone);
  results.campaign.measure.confidence = fields.NumberIn("confidence", 0.01, 0.9999);
  results.campaign.measure.min_effect = fields.NumberIn("min_effect", 0, 1);
  const Json& points = fields.Array("baseline");
  for (size_t i = 0; i < points.size(); ++i) {
    LASTFLOP_ASSIGN_OR_RETURN(Point point, ReadPoint(points[i], fields.PathOf("baseline", i)));
    results.campaign.points.push_back(std::move(point));
  }
  if (const Json* environment = fields.Find("environment")) {
    for (const auto& [key, value] : environment->items()) {
      compared.environment[key] = value.is_string() ? value.get<std::string>() : value.dump();
    }
  }
  const Json& trials = fields.Array("trials");
  for (size_t i = 0; i < trials.size(); ++i) {
    LASTFLOP_RETURN_IF_ERROR(ReadTrial(trials[i], fields.PathOf("trials", i), results));
  }
  LASTFLOP_RETURN_IF_ERROR(fields.status());
  return compared;
}

absl::StatusOr<ComparedCampaign> ReadExport(const std::string& path) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  return ParseExport(text, path);
}

}  // namespace lastflop
