// All-reduce over peer memory between processes, a GPU each.
#include <cuda_runtime_api.h>
#include <signal.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/cuda/cuda_peer_communicator.h"
#include "collectives/gang.h"
#include "gmock/gmock.h"
#include "gpu/cuda_status.h"
#include "gpu/device_buffer.h"
#include "gpu/stream.h"
#include "gtest/gtest.h"
#include "tests/collectives/run_ranks.h"

namespace lastflop {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr int kRanks = 2;

// Asked in a process of its own: one that has used CUDA cannot fork ranks.
int NumGpus() {
  const auto outcomes = RunProcessRanks(1, [](int) -> std::string {
    int count = 0;
    return absl::StrCat(cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
  });
  return std::atoi(outcomes.at(0).text.c_str());
}

float ToFloat(uint16_t value) { return std::bit_cast<float>(uint32_t{value} << 16); }

uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::isnan(value) ? uint16_t{0x7FFF}
                           : static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// The same on every rank that asks; `rank`'s values of call `call`.
std::vector<uint16_t> ValuesOf(int rank, int call, int64_t elements) {
  std::mt19937 random(static_cast<unsigned>(rank * 1000 + call));
  std::vector<uint16_t> values(static_cast<size_t>(elements));
  for (uint16_t& value : values) {
    value = ToBf16(static_cast<float>(random() % 20001) / 1000.0F - 10.0F);
  }
  return values;
}

std::vector<uint16_t> SumOf(int call, int64_t elements) {
  const auto first = ValuesOf(0, call, elements);
  const auto second = ValuesOf(1, call, elements);
  std::vector<uint16_t> sum(first.size());
  for (size_t i = 0; i < sum.size(); ++i) {
    sum[i] = ToBf16(ToFloat(first[i]) + ToFloat(second[i]));
  }
  return sum;
}

// A rank's GPU, stream and communicator.
struct Rank {
  int rank;
  Gang& gang;
  Stream stream;
  CudaPeerCommunicator& peers;

  absl::StatusOr<DeviceBuffer> Upload(const std::vector<uint16_t>& values) const {
    auto buffer = DeviceBuffer::Create(values.size() * 2);
    if (buffer.ok()) {
      cudaMemcpyAsync(buffer->data(), values.data(), values.size() * 2, cudaMemcpyHostToDevice,
                      stream.get());
    }
    return buffer;
  }
  std::vector<uint16_t> Download(const DeviceBuffer& buffer) const {
    std::vector<uint16_t> values(buffer.bytes() / 2);
    cudaMemcpyAsync(values.data(), buffer.data(), buffer.bytes(), cudaMemcpyDeviceToHost,
                    stream.get());
    cudaStreamSynchronize(stream.get());
    return values;
  }
  absl::Status Wait() const {
    const absl::Status status = stream.Synchronize();
    return status.ok() ? peers.Check() : status;
  }
};

using RankBody = std::function<std::string(Rank&)>;

std::vector<RankOutcome> RunGpus(milliseconds timeout, int64_t region_bytes, const RankBody& body) {
  const std::string path = FreshRendezvous();
  return RunProcessRanks(kRanks, [&](int rank) -> std::string {
    auto gang = JoinGang(path, rank, kRanks, milliseconds(30'000));
    if (!gang.ok()) {
      return gang.status().ToString();
    }
    if (cudaSetDevice(rank) != cudaSuccess) {
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

void ExpectAllOk(const std::vector<RankOutcome>& outcomes) {
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.text, "ok");
    EXPECT_EQ(outcome.signal, 0);
  }
}

class PeerAllReduceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (NumGpus() < kRanks) {
      const char* need = std::getenv("LASTFLOP_REQUIRE_GPU");
      if (need != nullptr && std::string(need) == "1") {
        FAIL() << "LASTFLOP_REQUIRE_GPU=1 and there are no two GPUs";
      }
      GTEST_SKIP() << "fewer than two GPUs";
    }
  }
};

std::string Difference(const std::vector<uint16_t>& got, const std::vector<uint16_t>& wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (got[i] != wanted[i]) {
      return absl::StrCat("element ", i, " of ", wanted.size(), " is ", ToFloat(got[i]), ", not ",
                          ToFloat(wanted[i]));
    }
  }
  return "ok";
}

// New ranks on the same GPUs sum as if nothing had happened.
void ExpectDevicesUsable() {
  ExpectAllOk(RunGpus(milliseconds(5'000), 1 << 20, [](Rank& self) -> std::string {
    auto data = self.Upload(ValuesOf(self.rank, 1, 4096));
    if (!data.ok()) {
      return "no memory";
    }
    absl::Status status = self.peers.AllReduce(data->As<__nv_bfloat16>(), 4096,
                                               AllReduceAlgorithm::kOneShot, self.stream.get());
    if (status.ok()) {
      status = self.Wait();
    }
    return status.ok() ? Difference(self.Download(*data), SumOf(1, 4096)) : status.ToString();
  }));
}

// Bits as the sum in rank order has them. The small region makes the last sizes take two calls.
TEST_F(PeerAllReduceTest, SumsEverySizeWithEveryAlgorithm) {
  constexpr int64_t kMiB = 1 << 20;
  ExpectAllOk(RunGpus(milliseconds(10'000), 8 * kMiB, [](Rank& self) -> std::string {
    int call = 0;
    for (const int64_t bytes :
         {int64_t{4}, int64_t{20}, int64_t{16}, int64_t{34}, int64_t{14336}, int64_t{65536},
          8 * kMiB, 8 * kMiB + 16, 12 * kMiB, 64 * kMiB, int64_t{6}}) {
      for (const AllReduceAlgorithm algorithm :
           {AllReduceAlgorithm::kOneShot, AllReduceAlgorithm::kTwoShot}) {
        ++call;
        auto data = self.Upload(ValuesOf(self.rank, call, bytes / 2));
        if (!data.ok()) {
          return data.status().ToString();
        }
        absl::Status status = self.peers.AllReduce(data->As<__nv_bfloat16>(), bytes / 2, algorithm,
                                                   self.stream.get());
        if (status.ok()) {
          status = self.Wait();
        }
        if (!status.ok()) {
          return absl::StrCat(bytes, " bytes: ", status.ToString());
        }
        const std::string difference = Difference(self.Download(*data), SumOf(call, bytes / 2));
        if (difference != "ok") {
          return absl::StrCat(ToWord(algorithm), " ", bytes, " bytes: ", difference);
        }
      }
    }
    return "ok";
  }));
}

// What a packet uses to say that it is not here is sent as another NaN; -0 and inf are sums too.
TEST_F(PeerAllReduceTest, SendsEveryBitPattern) {
  ExpectAllOk(RunGpus(milliseconds(5'000), 1 << 20, [](Rank& self) -> std::string {
    std::vector<uint16_t> values(1 << 16);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = self.rank == 0 ? static_cast<uint16_t>(i) : uint16_t{0x8000};
    }
    auto data = self.Upload(values);
    auto ones = self.Upload(std::vector<uint16_t>(64, 0xFFFF));
    if (!data.ok() || !ones.ok()) {
      return "no memory";
    }
    for (auto* buffer : {&*data, &*ones}) {
      const absl::Status status = self.peers.AllReduce(
          buffer->As<__nv_bfloat16>(), static_cast<int64_t>(buffer->bytes()) / 2,
          AllReduceAlgorithm::kOneShot, self.stream.get());
      if (!status.ok()) {
        return status.ToString();
      }
    }
    const absl::Status status = self.Wait();
    if (!status.ok()) {
      return status.ToString();
    }
    const auto sums = self.Download(*data);
    for (size_t i = 0; i < sums.size(); ++i) {
      const float value = ToFloat(static_cast<uint16_t>(i));
      if (std::isnan(value) ? !std::isnan(ToFloat(sums[i])) : sums[i] != i) {
        return absl::StrCat("pattern ", i, " became ", sums[i]);
      }
    }
    return std::isnan(ToFloat(self.Download(*ones)[5])) ? "ok" : "a NaN was lost";
  }));
}

// Fifty calls in one graph, each on the last one's output, of both algorithms, replayed.
TEST_F(PeerAllReduceTest, ChainsCallsInAGraph) {
  ExpectAllOk(RunGpus(milliseconds(5'000), 1 << 20, [](Rank& self) -> std::string {
    constexpr int64_t kElements = 7168 * 3 + 5;
    constexpr int kCalls = 51;  // Odd, so that replays begin on both parities.
    auto data = self.Upload(std::vector<uint16_t>(kElements, 0));
    if (!data.ok()) {
      return "no memory";
    }
    const auto graph = Graph::Capture(self.stream, [&]() -> absl::Status {
      for (int i = 0; i < kCalls; ++i) {
        const absl::Status status = self.peers.AllReduce(
            data->As<__nv_bfloat16>(), kElements,
            i % 3 == 0 ? AllReduceAlgorithm::kTwoShot : AllReduceAlgorithm::kOneShot,
            self.stream.get());
        if (!status.ok()) {
          return status;
        }
      }
      return absl::OkStatus();
    });
    if (!graph.ok()) {
      return graph.status().ToString();
    }
    for (int replay = 0; replay < 3; ++replay) {
      const auto values = ValuesOf(self.rank, replay, kElements);
      cudaMemcpyAsync(data->data(), values.data(), values.size() * 2, cudaMemcpyHostToDevice,
                      self.stream.get());
      absl::Status status = graph->Launch(self.stream);
      if (status.ok()) {
        status = self.Wait();
      }
      if (!status.ok()) {
        return status.ToString();
      }
      std::vector<uint16_t> wanted = SumOf(replay, kElements);
      for (uint16_t& value : wanted) {  // Every further call doubles: exact.
        value = ToBf16(std::ldexp(ToFloat(value), kCalls - 1));
      }
      const std::string difference = Difference(self.Download(*data), wanted);
      if (difference != "ok") {
        return absl::StrCat("replay ", replay, ": ", difference);
      }
    }
    return "ok";
  }));
}

TEST_F(PeerAllReduceTest, NormsTheSumInTheSameKernel) {
  ExpectAllOk(RunGpus(milliseconds(5'000), 16 << 20, [](Rank& self) -> std::string {
    int call = 0;
    for (const auto& [rows, size] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 7168}, {3, 256}, {2, 8200}, {300, 1024}, {73, 7168}}) {
      for (const bool add_residual : {true, false}) {
        ++call;
        const int64_t elements = rows * size;
        const auto sum = SumOf(call, elements);
        const auto before = ValuesOf(7, call, elements);
        const auto gain = ValuesOf(8, call, size);
        auto in = self.Upload(ValuesOf(self.rank, call, elements));
        auto residual = self.Upload(before);
        auto device_gain = self.Upload(gain);
        auto out = self.Upload(std::vector<uint16_t>(static_cast<size_t>(elements), 0xFFFF));
        if (!in.ok() || !residual.ok() || !device_gain.ok() || !out.ok()) {
          return "no memory";
        }
        const NormShape shape{.rows = rows,
                              .size = size,
                              .stride = size,
                              .epsilon = 1e-5,
                              .add_residual = add_residual};
        cudaStreamSynchronize(self.stream.get());  // The gain is read early.
        absl::Status status = self.peers.AllReduceNorm(
            shape, in->As<__nv_bfloat16>(), residual->As<__nv_bfloat16>(),
            device_gain->As<__nv_bfloat16>(), out->As<__nv_bfloat16>(), self.stream.get());
        if (status.ok()) {
          status = self.Wait();
        }
        if (!status.ok()) {
          return status.ToString();
        }
        const auto got_residual = self.Download(*residual);
        const auto got = self.Download(*out);
        for (int64_t row = 0; row < rows; ++row) {
          double squares = 0;
          for (int64_t i = 0; i < size; ++i) {
            const auto at = static_cast<size_t>(row * size + i);
            const uint16_t wanted =
                add_residual ? ToBf16(ToFloat(sum[at]) + ToFloat(before[at])) : sum[at];
            if (got_residual[at] != wanted) {
              return absl::StrCat(rows, "x", size, ": residual ", at, " is ",
                                  ToFloat(got_residual[at]), ", not ", ToFloat(wanted));
            }
            squares += std::pow(ToFloat(wanted), 2);
          }
          const double scale = 1 / std::sqrt(squares / static_cast<double>(size) + 1e-5);
          for (int64_t i = 0; i < size; ++i) {
            const auto at = static_cast<size_t>(row * size + i);
            const double wanted =
                ToFloat(got_residual[at]) * scale * ToFloat(gain[static_cast<size_t>(i)]);
            if (!(std::abs(ToFloat(got[at]) - wanted) <= 0.004 * std::abs(wanted) + 1e-6)) {
              return absl::StrCat(rows, "x", size, ": out ", at, " is ", ToFloat(got[at]), ", not ",
                                  wanted);
            }
          }
        }
      }
    }
    return "ok";
  }));
}

TEST_F(PeerAllReduceTest, NamesTheRankThatDoesNotCome) {
  const auto outcomes = RunGpus(milliseconds(200), 1 << 20, [](Rank& self) -> std::string {
    auto data = self.Upload(std::vector<uint16_t>(4096, 0));
    if (!data.ok() || self.rank == 1) {
      return "ok";
    }
    absl::Status status = absl::OkStatus();
    for (int i = 0; i < 20 && status.ok(); ++i) {  // The later ones do not wait again.
      status = self.peers.AllReduce(data->As<__nv_bfloat16>(), 4096, AllReduceAlgorithm::kOneShot,
                                    self.stream.get());
    }
    if (status.ok()) {
      status = self.Wait();
    }
    return status.ToString();
  });
  EXPECT_THAT(outcomes.at(0).text, HasSubstr("DEADLINE_EXCEEDED"));
  EXPECT_THAT(outcomes.at(0).text, HasSubstr("rank 1 of 2"));
  EXPECT_EQ(outcomes.at(1).text, "ok");
}

// Ranks that disagree about the size of a call: one at least fails and names the other, in time,
// and the devices work on.
TEST_F(PeerAllReduceTest, FailsOnUnequalCountsAndLeavesTheDevicesUsable) {
  for (const AllReduceAlgorithm algorithm :
       {AllReduceAlgorithm::kOneShot, AllReduceAlgorithm::kTwoShot}) {
    const auto outcomes = RunGpus(milliseconds(500), 1 << 20, [&](Rank& self) -> std::string {
      const int64_t elements = self.rank == 0 ? 4096 : 8192;
      auto data = self.Upload(ValuesOf(self.rank, 1, elements));
      if (!data.ok()) {
        return "no memory";
      }
      absl::Status status =
          self.peers.AllReduce(data->As<__nv_bfloat16>(), elements, algorithm, self.stream.get());
      if (status.ok()) {
        status = self.Wait();
      }
      return status.ToString();
    });
    EXPECT_THAT(outcomes.at(1).text, HasSubstr("DEADLINE_EXCEEDED")) << ToWord(algorithm);
    EXPECT_THAT(outcomes.at(1).text, HasSubstr("rank 0 of 2")) << ToWord(algorithm);
    EXPECT_EQ(outcomes.at(0).signal, 0);
  }
  ExpectDevicesUsable();
}

// The timeout is far off: what ends the call is that the gang lost the rank. The devices work on.
TEST_F(PeerAllReduceTest, EndsTheCallOfAKilledRankAndLeavesTheDevicesUsable) {
  const auto outcomes = RunGpus(milliseconds(50'000), 1 << 20, [](Rank& self) -> std::string {
    auto data = self.Upload(std::vector<uint16_t>(4096, 0));
    if (!data.ok()) {
      return "no memory";
    }
    const int calls = self.rank == 1 ? 20'000 : 40'000;
    absl::Status status = absl::OkStatus();
    for (int i = 0; i < calls && status.ok(); ++i) {
      status = self.peers.AllReduce(
          data->As<__nv_bfloat16>(), 4096,
          i % 2 == 0 ? AllReduceAlgorithm::kOneShot : AllReduceAlgorithm::kTwoShot,
          self.stream.get());
      if (self.rank == 1 && i == calls - 1) {
        kill(getpid(), SIGKILL);
      }
    }
    if (status.ok()) {
      status = self.Wait();
    }
    return status.ToString();
  });
  EXPECT_EQ(outcomes.at(1).signal, SIGKILL);
  EXPECT_THAT(outcomes.at(0).text, HasSubstr("ABORTED"));
  EXPECT_THAT(outcomes.at(0).text, HasSubstr("rank 1 of 2 ended"));
  ExpectDevicesUsable();
}

// Rank 1 comes 20 ms late: rank 0 books them as waiting, rank 1 does not.
TEST_F(PeerAllReduceTest, StampsWaitingForALateRankApart) {
  const auto outcomes = RunGpus(milliseconds(5'000), 1 << 20, [](Rank& self) -> std::string {
    auto data = self.Upload(std::vector<uint16_t>(7168, 0));
    if (!data.ok() || !self.gang.Barrier().ok()) {
      return "no memory";
    }
    const auto begin = std::chrono::steady_clock::now();
    while (self.rank == 1 && std::chrono::steady_clock::now() - begin < milliseconds(20)) {
    }
    self.peers.SetStamping(true);
    absl::Status status = self.peers.AllReduce(data->As<__nv_bfloat16>(), 7168,
                                               AllReduceAlgorithm::kOneShot, self.stream.get());
    const auto stamps = self.peers.ReadStamps(self.stream.get());
    if (!status.ok() || !stamps.ok() || stamps->calls != 1) {
      return "no stamps";
    }
    const bool waited = stamps->wait_us > 10'000;
    return waited == (self.rank == 0) && stamps->transfer_us < 1'000
               ? "ok"
               : absl::StrCat("waited ", stamps->wait_us, " us, transfer ", stamps->transfer_us);
  });
  ExpectAllOk(outcomes);
}

}  // namespace
}  // namespace lastflop
