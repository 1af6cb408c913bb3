#include "worker/collective_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collectives/gang.h"
#include "common/exit_codes.h"
#include "common/status_macros.h"
#include "worker/collective_bencher.h"
#include "worker/measuring_hold.h"

namespace lastflop {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds kGangTimeout{60'000};
constexpr std::chrono::milliseconds kHoldTimeout{60'000};
constexpr int64_t kRowBytes = kBenchHiddenSize * 2;
constexpr int64_t kMostNormBytes = int64_t{2} << 20;
constexpr int64_t kMostExchangedBytes = int64_t{16} << 20;
// Of messages this long fewer chains are timed.
constexpr int64_t kLongBytes = int64_t{4} << 20;

absl::StatusOr<std::unique_ptr<CollectiveBencher>> MakeBencher(const std::string& device,
                                                               Gang& gang) {
  if (absl::StartsWith(device, "cpu:")) {
    return CreateCpuCollectiveBencher(gang);
  }
  int index = 0;
  if (!absl::StartsWith(device, "cuda:") || !absl::SimpleAtoi(device.substr(5), &index)) {
    return absl::InvalidArgumentError(absl::StrCat("device ", device, ": cpu:N or cuda:N"));
  }
  return CreateCudaCollectiveBencher(gang, index);
}

bool Asks(const CollectiveBenchOptions& options, const std::string& operation) {
  return std::find(options.operations.begin(), options.operations.end(), operation) !=
         options.operations.end();
}

CollectiveCase CaseOf(const CollectiveBenchOptions& options, int64_t bytes) {
  const bool is_cpu = absl::StartsWith(options.device, "cpu:");
  return {.bytes = bytes,
          .num_calls = is_cpu ? 10 : 50,
          .num_samples = is_cpu                ? 5
                         : bytes >= kLongBytes ? 7
                                               : 31};
}

void AddAllReduces(const CollectiveBenchOptions& options, std::vector<CollectiveCase>& cases) {
  for (const int64_t bytes : options.bytes) {
    CollectiveCase test = CaseOf(options, bytes);
    for (const AllReduceAlgorithm algorithm : options.algorithms) {
      test.asked = algorithm;
      for (const bool is_dependent : {true, false}) {
        test.is_dependent = is_dependent;
        cases.push_back(test);
      }
    }
  }
}

void AddNorms(const CollectiveBenchOptions& options, std::vector<CollectiveCase>& cases) {
  for (const int64_t bytes : options.bytes) {
    if (absl::StartsWith(options.device, "cpu:") || bytes < kRowBytes || bytes > kMostNormBytes) {
      continue;
    }
    for (const char* operation : {"all_reduce_norm", "all_reduce_then_norm"}) {
      CollectiveCase test = CaseOf(options, bytes / kRowBytes * kRowBytes);
      test.operation = operation;
      test.asked = AllReduceAlgorithm::kOneShot;
      cases.push_back(test);
    }
  }
}

void AddAllToAlls(const CollectiveBenchOptions& options, std::vector<CollectiveCase>& cases) {
  for (const int64_t bytes : options.bytes) {
    if (bytes < kRowBytes || bytes > kMostExchangedBytes) {
      continue;
    }
    CollectiveCase test = CaseOf(options, bytes / kRowBytes * kRowBytes);
    for (const char* operation : {"all_to_all_dispatch", "all_to_all_combine"}) {
      test.operation = operation;
      for (const AllToAllAlgorithm algorithm : options.exchanges) {
        test.exchange = algorithm;
        for (const bool is_dependent : {true, false}) {
          test.is_dependent = is_dependent;
          cases.push_back(test);
        }
      }
    }
  }
}

std::vector<CollectiveCase> CasesOf(const CollectiveBenchOptions& options) {
  std::vector<CollectiveCase> cases;
  if (Asks(options, "all_reduce")) {
    AddAllReduces(options, cases);
  }
  if (Asks(options, "all_reduce_norm")) {
    AddNorms(options, cases);
  }
  if (Asks(options, "all_to_all")) {
    AddAllToAlls(options, cases);
  }
  return cases;
}

std::string AskedOf(const CollectiveCase& test) {
  return std::string(IsAllToAll(test) ? ToWord(test.exchange) : ToWord(test.asked));
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Standard deviation over mean.
double Noise(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) {
    squares += (value - mean) * (value - mean);
  }
  return values.size() > 1 ? std::sqrt(squares / (count - 1)) / mean : 0;
}

absl::StatusOr<double> MaxOverRanks(Gang& gang, double value) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<double> all, gang.AllGather(value));
  return *std::max_element(all.begin(), all.end());
}

// Each chain's time is that of its slowest rank.
absl::StatusOr<Json> RowOf(const CollectiveCase& test, CollectiveSamples samples, Gang& gang) {
  for (double& us : samples.us) {
    LASTFLOP_ASSIGN_OR_RETURN(us, MaxOverRanks(gang, us));
  }
  LASTFLOP_ASSIGN_OR_RETURN(const double wait_us, MaxOverRanks(gang, samples.wait_us.value_or(0)));
  LASTFLOP_ASSIGN_OR_RETURN(const double wrong, MaxOverRanks(gang, samples.is_correct ? 0 : 1));
  return Json{{"operation", test.operation},
              {"algorithm", IsAllToAll(test) ? AskedOf(test) : std::string(ToWord(samples.ran))},
              {"asked", AskedOf(test)},
              {"ranks", gang.num_ranks()},
              {"bytes", test.bytes},
              {"us", Median(samples.us)},
              {"wait_us", samples.wait_us.has_value() ? Json(wait_us) : Json(nullptr)},
              {"chain", test.is_dependent ? "dependent" : "independent"},
              {"noise", Noise(samples.us)},
              {"correct", wrong == 0},
              {"calls", test.num_calls},
              {"samples", samples.us.size()}};
}

absl::Status Bench(const CollectiveBenchOptions& options) {
  LASTFLOP_ASSIGN_OR_RETURN(
      const std::unique_ptr<Gang> gang,
      JoinGang(options.rendezvous, options.rank, options.num_ranks, kGangTimeout));
  LASTFLOP_ASSIGN_OR_RETURN(
      const MeasuringHold hold,
      HoldToMeasure(*gang, {.device = options.device, .timeout = kHoldTimeout}));
  LASTFLOP_ASSIGN_OR_RETURN(const std::unique_ptr<CollectiveBencher> bencher,
                            MakeBencher(options.device, *gang));
  Json document{
      {"environment", bencher->Environment()}, {"skipped", Json::array()}, {"rows", Json::array()}};
  for (const CollectiveCase& test : CasesOf(options)) {
    absl::StatusOr<CollectiveSamples> samples = bencher->Run(test);
    if (absl::IsUnimplemented(samples.status())) {
      document["skipped"].push_back({{"operation", test.operation},
                                     {"asked", AskedOf(test)},
                                     {"bytes", test.bytes},
                                     {"reason", std::string(samples.status().message())}});
      continue;
    }
    LASTFLOP_RETURN_IF_ERROR(samples.status());
    LASTFLOP_ASSIGN_OR_RETURN(Json row, RowOf(test, *std::move(samples), *gang));
    document["rows"].push_back(std::move(row));
  }
  if (options.rank == 0) {
    std::cout << document.dump() << std::endl;
  }
  return gang->Barrier();
}

}  // namespace

int RunCollectiveBench(const CollectiveBenchOptions& options) {
  const absl::Status status = Bench(options);
  if (status.ok()) {
    return kExitFinished;
  }
  std::cerr << "lastflop-worker: rank " << options.rank << ": " << status.message() << "\n";
  return ExitCodeOf(status);
}

}  // namespace lastflop
