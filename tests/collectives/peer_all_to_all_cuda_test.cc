// All-to-all of tokens over peer memory between processes, a GPU each; where there are fewer GPUs
// than ranks, ranks share one, which is slow and right.
#include <cuda_runtime_api.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/cuda/cuda_peer_communicator.h"
#include "collectives/cuda/nccl_all_to_all_cuda.h"
#include "collectives/gang.h"
#include "gmock/gmock.h"
#include "gpu/device_buffer.h"
#include "gpu/nccl.h"
#include "gpu/stream.h"
#include "gtest/gtest.h"
#include "tests/collectives/run_ranks.h"
#include "tests/collectives/token_exchange_case.h"

namespace lastflop {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// Asked in a process of its own: one that has used CUDA cannot fork ranks.
int NumGpus() {
  const auto outcomes = RunProcessRanks(1, [](int) -> std::string {
    int count = 0;
    return absl::StrCat(cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
  });
  return std::atoi(outcomes.at(0).text.c_str());
}

struct Rank {
  int rank;
  Gang& gang;
  Stream stream;
  CudaPeerCommunicator& peers;

  absl::Status Wait() const {
    const absl::Status status = stream.Synchronize();
    return status.ok() ? peers.Check() : status;
  }
};

template <typename T>
std::vector<T> PartOf(const std::vector<T>& all, const TokenSplit& split, int rank) {
  const auto of_token = static_cast<int64_t>(all.size()) / std::max<int64_t>(1, split.all_tokens());
  return {all.begin() + split.first_token[rank] * of_token,
          all.begin() + split.first_token[rank + 1] * of_token};
}

// Device memory of an exchange on one rank.
struct Buffers {
  DeviceBuffer rows, ids, weights, received, received_ids, received_weights, partial, shared, out,
      returned;

  static absl::StatusOr<Buffers> Create(const TokenExchangeCase& test, int rank) {
    Buffers b;
    const TokenSplit split = test.split();
    const auto own = static_cast<size_t>(split.tokens_of(rank));
    const auto all = static_cast<size_t>(split.all_tokens());
    const size_t row = static_cast<size_t>(test.hidden_size) * 2;
    const size_t words = static_cast<size_t>(test.top_k) * 4;
    const std::vector<std::pair<DeviceBuffer*, size_t>> sizes = {
        {&b.rows, own * row},
        {&b.ids, own * words},
        {&b.weights, own * words},
        {&b.received, all * row},
        {&b.received_ids, all * words},
        {&b.received_weights, all * words},
        {&b.partial, all * row},
        {&b.shared, own * row},
        {&b.out, own * row},
        {&b.returned, own * row * test.tokens.size()}};
    for (const auto& [buffer, bytes] : sizes) {
      auto made = DeviceBuffer::Create(std::max<size_t>(bytes, 16));
      if (!made.ok()) {
        return made.status();
      }
      *buffer = *std::move(made);
    }
    return b;
  }

  template <typename T>
  static void Send(const std::vector<T>& values, const DeviceBuffer& to) {
    if (!values.empty()) {
      cudaMemcpy(to.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
    }
  }
  template <typename T>
  static std::vector<T> Read(const DeviceBuffer& from, size_t count) {
    std::vector<T> values(count);
    if (count > 0) {
      cudaMemcpy(values.data(), from.data(), count * sizeof(T), cudaMemcpyDeviceToHost);
    }
    return values;
  }

  void Fill(const TokenExchangeCase& test, int rank) const {
    const TokenSplit split = test.split();
    Send(PartOf(test.Rows(), split, rank), rows);
    Send(PartOf(test.Ids(), split, rank), ids);
    Send(PartOf(test.Weights(), split, rank), weights);
    Send(PartOf(test.Shared(), split, rank), shared);
    Send(test.PartialOf(rank), partial);
    for (const DeviceBuffer* buffer : {&received, &received_ids, &received_weights, &out}) {
      cudaMemset(buffer->data(), 0xEE, buffer->bytes());
    }
    cudaDeviceSynchronize();
  }

  DispatchTensors dispatch() const {
    return {.rows = rows.As<__nv_bfloat16>(),
            .expert_ids = ids.As<int32_t>(),
            .weights = weights.As<float>(),
            .received = received.As<__nv_bfloat16>(),
            .received_ids = received_ids.As<int32_t>(),
            .received_weights = received_weights.As<float>()};
  }
  CombineTensors combine(bool has_shared) const {
    return {.partial = partial.As<__nv_bfloat16>(),
            .received_ids = received_ids.As<int32_t>(),
            .expert_ids = ids.As<int32_t>(),
            .shared = has_shared ? shared.As<__nv_bfloat16>() : nullptr,
            .out = out.As<__nv_bfloat16>()};
  }
};

// "ok", or the first difference. `sends_all`: rows and experts of tokens that have no expert here
// come too.
std::string CheckReceived(const TokenExchangeCase& test, int rank, const Buffers& b,
                          bool sends_all) {
  const auto all = static_cast<size_t>(test.split().all_tokens());
  const auto hidden = static_cast<size_t>(test.hidden_size);
  const auto top_k = static_cast<size_t>(test.top_k);
  const auto rows = test.Rows();
  const auto ids = test.Ids();
  const auto weights = test.Weights();
  const auto got_rows = Buffers::Read<uint16_t>(b.received, all * hidden);
  const auto got_ids = Buffers::Read<int32_t>(b.received_ids, all * top_k);
  const auto got_weights = Buffers::Read<float>(b.received_weights, all * top_k);
  for (size_t token = 0; token < all; ++token) {
    const bool comes = sends_all || test.Goes(ids, static_cast<int64_t>(token), rank);
    for (size_t h = token * hidden; h < (token + 1) * hidden; ++h) {
      if (got_rows[h] != (comes ? rows[h] : 0xEEEE)) {
        return absl::StrCat(test.name(), "value ", h % hidden, " of token ", token, " on rank ",
                            rank, " is ", got_rows[h]);
      }
    }
    for (size_t k = token * top_k; k < (token + 1) * top_k; ++k) {
      if (got_ids[k] != (comes ? ids[k] : -1) || (comes && got_weights[k] != weights[k])) {
        return absl::StrCat(test.name(), "slot ", k % top_k, " of token ", token, " on rank ", rank,
                            " has expert ", got_ids[k], ", weight ", got_weights[k]);
      }
    }
  }
  return "ok";
}

std::string CheckCombined(const TokenExchangeCase& test, int rank, const Buffers& b) {
  const TokenSplit split = test.split();
  const auto hidden = static_cast<size_t>(test.hidden_size);
  const auto ids = test.Ids();
  const auto shared = test.Shared();
  std::vector<std::vector<uint16_t>> partials;
  for (size_t r = 0; r < test.tokens.size(); ++r) {
    partials.push_back(test.PartialOf(static_cast<int>(r)));
  }
  const auto got =
      Buffers::Read<uint16_t>(b.out, static_cast<size_t>(split.tokens_of(rank)) * hidden);
  for (size_t i = 0; i < got.size(); ++i) {
    const int64_t token = split.first_token[rank] + static_cast<int64_t>(i / hidden);
    const size_t at = static_cast<size_t>(token) * hidden + i % hidden;
    float sum = 0;
    for (size_t r = 0; r < partials.size(); ++r) {
      if (test.Goes(ids, token, static_cast<int>(r))) {
        sum += ToFloat(partials[r][at]);
      }
    }
    sum += test.has_shared ? ToFloat(shared[at]) : 0;
    if (ToFloat(got[i]) != ToFloat(ToBf16(sum))) {
      return absl::StrCat(test.name(), "sum ", i % hidden, " of token ", token, " is ",
                          ToFloat(got[i]), ", not ", sum);
    }
  }
  return "ok";
}

std::string Exchange(Rank& self, const TokenExchangeCase& test) {
  const auto b = Buffers::Create(test, self.rank);
  if (!b.ok()) {
    return b.status().ToString();
  }
  b->Fill(test, self.rank);
  const TokenSplit split = test.split();
  absl::Status status = self.peers.Dispatch(split, b->dispatch(), self.stream.get());
  if (status.ok()) {
    status = self.peers.Combine(split, b->combine(test.has_shared), self.stream.get());
  }
  if (status.ok()) {
    status = self.Wait();
  }
  if (!status.ok()) {
    return absl::StrCat(test.name(), status.ToString());
  }
  const std::string received = CheckReceived(test, self.rank, *b, /*sends_all=*/false);
  return received == "ok" ? CheckCombined(test, self.rank, *b) : received;
}

using RankBody = std::function<std::string(Rank&)>;

class PeerAllToAllTest : public ::testing::Test {
 protected:
  void SetUp() override {
    num_gpus_ = NumGpus();
    NeedGpus(1);
  }

  void NeedGpus(int count) {
    if (num_gpus_ < count) {
      const char* need = std::getenv("LASTFLOP_REQUIRE_GPU");
      if (need != nullptr && std::string(need) == "1") {
        FAIL() << "LASTFLOP_REQUIRE_GPU=1 and there are " << num_gpus_ << " GPUs of " << count;
      }
      GTEST_SKIP() << "fewer GPUs than " << count;
    }
  }

  std::vector<RankOutcome> RunGpus(int num_ranks, milliseconds timeout, int64_t region_bytes,
                                   const RankBody& body) const {
    const std::string path = FreshRendezvous();
    return RunProcessRanks(num_ranks, [&](int rank) -> std::string {
      auto gang = JoinGang(path, rank, num_ranks, milliseconds(30'000));
      if (!gang.ok()) {
        return gang.status().ToString();
      }
      if (cudaSetDevice(rank % num_gpus_) != cudaSuccess) {
        return "no device";
      }
      auto peers =
          CudaPeerCommunicator::Create(**gang, {.region_bytes = region_bytes, .timeout = timeout});
      auto stream = Stream::Create();
      if (!peers.ok() || !stream.ok()) {
        return absl::StrCat(peers.status().ToString(), stream.status().ToString());
      }
      const std::shared_ptr<const void> watch = (*peers)->Watch(**gang);
      Rank self{rank, **gang, *std::move(stream), **peers};
      const std::string result = body(self);
      (*gang)->Barrier().IgnoreError();
      return result;
    });
  }

  static void ExpectAllOk(const std::vector<RankOutcome>& outcomes) {
    for (const RankOutcome& outcome : outcomes) {
      EXPECT_EQ(outcome.text, "ok");
      EXPECT_EQ(outcome.signal, 0);
    }
  }

  int num_gpus_ = 0;
};

// Ranks of unequal tokens, one without any, popular experts, a rank that gets none, an odd top_k,
// rows of fewer packets than a block has threads.
std::vector<TokenExchangeCase> Cases() {
  std::vector<TokenExchangeCase> cases;
  for (const Routing routing : {Routing::kUniform, Routing::kZipf, Routing::kAllToRankZero}) {
    cases.push_back({{8, 8}, 7168, 8, 384, routing, true});
    cases.push_back({{3, 2}, 256, 2, 8, routing, true});
    cases.push_back({{1, 0}, 4096, 1, 128, routing, false});
    cases.push_back({{0, 7}, 64, 3, 6, routing, false});
    cases.push_back({{41, 40}, 2048, 8, 64, routing, true});
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i].seed = static_cast<int>(i) + 1;
  }
  return cases;
}

TEST_F(PeerAllToAllTest, BringsTokensToTheirExpertsAndTheSumsBack) {
  ExpectAllOk(RunGpus(2, milliseconds(20'000), 8 << 20, [](Rank& self) -> std::string {
    for (const TokenExchangeCase& test : Cases()) {
      if (const std::string result = Exchange(self, test); result != "ok") {
        return result;
      }
    }
    return "ok";
  }));
}

// The region holds two or three tokens, so that a call takes many launches.
TEST_F(PeerAllToAllTest, TakesMoreTokensThanARegionHolds) {
  ExpectAllOk(RunGpus(2, milliseconds(20'000), 16 << 10, [](Rank& self) -> std::string {
    return Exchange(self, {{11, 10}, 2048, 4, 16, Routing::kZipf, true, 3});
  }));
}

TEST_F(PeerAllToAllTest, RefusesATokenThatDoesNotFit) {
  const auto outcomes = RunGpus(2, milliseconds(20'000), 4 << 10, [](Rank& self) -> std::string {
    return Exchange(self, {{1, 1}, 7168, 4, 16, Routing::kZipf, true, 3});
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_THAT(outcome.text, HasSubstr("INVALID_ARGUMENT"));
    EXPECT_THAT(outcome.text, HasSubstr("a region of 4096 bytes takes 1 to 0"));
  }
}

TEST_F(PeerAllToAllTest, ExchangesAmongThreeRanks) {
  ExpectAllOk(RunGpus(3, milliseconds(20'000), 4 << 20, [](Rank& self) -> std::string {
    for (const Routing routing : {Routing::kUniform, Routing::kZipf, Routing::kAllToRankZero}) {
      const std::string result = Exchange(self, {{5, 4, 4}, 1024, 2, 12, routing, true, 9});
      if (result != "ok") {
        return result;
      }
    }
    return "ok";
  }));
}

// One graph; what is routed where changes between its replays, in device memory alone.
TEST_F(PeerAllToAllTest, ReplaysAGraphUnderAnotherRouting) {
  ExpectAllOk(RunGpus(2, milliseconds(20'000), 8 << 20, [](Rank& self) -> std::string {
    TokenExchangeCase test{{9, 8}, 1024, 4, 32, Routing::kUniform, true, 1};
    const auto b = Buffers::Create(test, self.rank);
    auto sums = DeviceBuffer::Create(4096);
    if (!b.ok() || !sums.ok()) {
      return "no memory";
    }
    cudaMemset(sums->data(), 0, sums->bytes());
    const TokenSplit split = test.split();
    const auto graph = Graph::Capture(self.stream, [&]() -> absl::Status {
      // An odd number of calls, so that replays begin on both parities; all-reduces in between.
      absl::Status status = self.peers.Dispatch(split, b->dispatch(), self.stream.get());
      if (status.ok()) {
        status = self.peers.AllReduce(sums->As<__nv_bfloat16>(), 2048, AllReduceAlgorithm::kOneShot,
                                      self.stream.get());
      }
      return status.ok() ? self.peers.Combine(split, b->combine(true), self.stream.get()) : status;
    });
    if (!graph.ok()) {
      return graph.status().ToString();
    }
    for (const Routing routing : {Routing::kUniform, Routing::kAllToRankZero, Routing::kZipf,
                                  Routing::kUniform, Routing::kZipf}) {
      test.routing = routing;
      ++test.seed;
      b->Fill(test, self.rank);
      absl::Status status = graph->Launch(self.stream);
      if (status.ok()) {
        status = self.Wait();
      }
      if (!status.ok()) {
        return status.ToString();
      }
      std::string result = CheckReceived(test, self.rank, *b, false);
      result = result == "ok" ? CheckCombined(test, self.rank, *b) : result;
      if (result != "ok") {
        return result;
      }
    }
    return "ok";
  }));
}

TEST_F(PeerAllToAllTest, GivesTheSameByNccl) {
  NeedGpus(2);
  if (IsSkipped()) {
    return;
  }
  ExpectAllOk(RunGpus(2, milliseconds(20'000), 1 << 20, [](Rank& self) -> std::string {
    const auto nccl = Nccl::Create(self.rank, 2, [&](const std::string& bytes) {
      return self.gang.BroadcastFromLeader(bytes);
    });
    if (!nccl.ok()) {
      return nccl.status().ToString();
    }
    for (const TokenExchangeCase& test : Cases()) {
      const auto b = Buffers::Create(test, self.rank);
      if (!b.ok()) {
        return b.status().ToString();
      }
      b->Fill(test, self.rank);
      const TokenSplit split = test.split();
      absl::Status status =
          NcclDispatch(**nccl, self.rank, split, b->dispatch(), self.stream.get());
      if (status.ok()) {
        status = NcclCombine(**nccl, self.rank, split, b->combine(test.has_shared),
                             b->returned.As<__nv_bfloat16>(), self.stream.get());
      }
      if (status.ok()) {
        status = self.stream.Synchronize();
      }
      if (!status.ok()) {
        return status.ToString();
      }
      std::string result = CheckReceived(test, self.rank, *b, /*sends_all=*/true);
      result = result == "ok" ? CheckCombined(test, self.rank, *b) : result;
      if (result != "ok") {
        return result;
      }
    }
    return "ok";
  }));
}

TEST_F(PeerAllToAllTest, NamesTheRankThatDoesNotCome) {
  const auto outcomes = RunGpus(2, milliseconds(300), 1 << 20, [](Rank& self) -> std::string {
    const TokenExchangeCase test{{4, 4}, 1024, 2, 8, Routing::kUniform, false, 1};
    const auto b = Buffers::Create(test, self.rank);
    if (!b.ok() || self.rank == 1) {
      return "ok";
    }
    b->Fill(test, self.rank);
    absl::Status status = absl::OkStatus();
    for (int i = 0; i < 10 && status.ok(); ++i) {  // The later ones do not wait again.
      status = self.peers.Dispatch(test.split(), b->dispatch(), self.stream.get());
      if (status.ok()) {
        status = self.peers.Combine(test.split(), b->combine(false), self.stream.get());
      }
    }
    return (status.ok() ? self.Wait() : status).ToString();
  });
  EXPECT_THAT(outcomes.at(0).text, HasSubstr("DEADLINE_EXCEEDED"));
  EXPECT_THAT(outcomes.at(0).text, HasSubstr("rank 1 of 2"));
  EXPECT_EQ(outcomes.at(1).text, "ok");
}

// The timeout is far off: what ends the call is that the gang lost the rank. The devices work on.
TEST_F(PeerAllToAllTest, EndsTheCallOfAKilledRankAndLeavesTheDevicesUsable) {
  const TokenExchangeCase test{{4, 4}, 1024, 2, 8, Routing::kZipf, false, 1};
  const auto outcomes = RunGpus(2, milliseconds(50'000), 1 << 20, [&](Rank& self) -> std::string {
    const auto b = Buffers::Create(test, self.rank);
    if (!b.ok()) {
      return "no memory";
    }
    b->Fill(test, self.rank);
    absl::Status status = absl::OkStatus();
    for (int i = 0; i < 40 && status.ok(); ++i) {
      if (self.rank == 1 && i == 20) {
        kill(getpid(), SIGKILL);
      }
      status = i % 2 == 0 ? self.peers.Dispatch(test.split(), b->dispatch(), self.stream.get())
                          : self.peers.Combine(test.split(), b->combine(false), self.stream.get());
    }
    return (status.ok() ? self.Wait() : status).ToString();
  });
  EXPECT_EQ(outcomes.at(1).signal, SIGKILL);
  EXPECT_THAT(outcomes.at(0).text, HasSubstr("ABORTED"));
  EXPECT_THAT(outcomes.at(0).text, HasSubstr("rank 1 of 2 ended"));
  ExpectAllOk(
      RunGpus(2, milliseconds(20'000), 1 << 20, [&](Rank& self) { return Exchange(self, test); }));
}

}  // namespace
}  // namespace lastflop
