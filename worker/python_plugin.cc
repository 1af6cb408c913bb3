#include "worker/python_plugin.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/spawn_arguments.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

using nlohmann::json;

constexpr size_t kAlignment = 64;
constexpr int kSocketFd = 3;  // In the process.
constexpr int kPoison = 0xFF;
constexpr int64_t kBf16Bytes = 2;

// The cores of all threads of this process: its first thread is pinned to one of them.
std::set<int> CoresOfThreads() {
  std::set<int> cores;
  DIR* const threads = opendir("/proc/self/task");
  if (threads == nullptr) {
    return cores;
  }
  while (const dirent* const entry = readdir(threads)) {
    int thread = 0;
    cpu_set_t set;
    if (absl::SimpleAtoi(entry->d_name, &thread) &&
        sched_getaffinity(thread, sizeof(set), &set) == 0) {
      for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(core, &set)) {
          cores.insert(core);
        }
      }
    }
  }
  closedir(threads);
  return cores;
}

json JsonOf(const lastflop_moe_problem& p) {
  constexpr const char* kFormats[] = {"", "bf16", "int4", "fp8_block", "nvfp4", "mxfp4"};
  return {{"device", p.device == LASTFLOP_DEVICE_CUDA ? "cuda" : "cpu"},
          {"num_threads", p.num_threads},
          {"max_tokens", p.max_tokens},
          {"top_k", p.top_k},
          {"num_experts", p.num_experts},
          {"first_expert", p.first_expert},
          {"num_local_experts", p.num_local_experts},
          {"hidden_size", p.hidden_size},
          {"intermediate_size", p.intermediate_size},
          {"weight_format", kFormats[p.weight_format]},
          {"has_shared", p.has_shared != 0},
          {"group_size", p.group_size},
          {"block_rows", p.block_rows}};
}

// An array in a segment.
struct Part {
  const char* name;
  std::vector<int64_t> shape;
  const char* dtype;  // As python_plugin_host.py calls it; null: there is none.
  int64_t value_bytes = 0;
  size_t begin = 0;

  size_t bytes() const {
    int64_t bytes = value_bytes;
    for (const int64_t extent : shape) {
      bytes *= extent;
    }
    return static_cast<size_t>(bytes);
  }
};

// Puts parts behind each other; returns the bytes of all.
size_t Place(std::vector<Part>& parts) {
  size_t end = 0;
  for (Part& part : parts) {
    part.begin = end;
    end += (part.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  return std::max(end, kAlignment);
}

json JsonOf(const std::vector<Part>& parts) {
  json result = json::object();
  for (const Part& part : parts) {
    result[part.name] = nullptr;
    if (part.dtype != nullptr) {
      result[part.name] = {{"begin", part.begin}, {"shape", part.shape}, {"dtype", part.dtype}};
    }
  }
  return result;
}

// Weights [experts, rows, cols] and their scales, as lastflop_plugin.h draws each format.
std::vector<Part> PartsOfWeight(const lastflop_moe_problem& p, const char* weights,
                                const char* scales, int64_t rows, int64_t cols) {
  const int64_t experts = p.num_local_experts;
  const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  switch (p.weight_format) {
    case LASTFLOP_WEIGHTS_BF16:
      return {{weights, {experts, rows, cols}, "bf16", kBf16Bytes}, {scales, {0}, nullptr}};
    case LASTFLOP_WEIGHTS_INT4:
      return {{weights, {experts, rows, cols / 2}, "uint8", 1},
              {scales, {experts, rows, cols / p.group_size}, "bf16", kBf16Bytes}};
    case LASTFLOP_WEIGHTS_FP8_BLOCK:
      return {{weights, {experts, rows, cols}, "uint8", 1},
              {scales, {experts, up(rows, p.block_rows), up(cols, p.group_size)}, "float32", 4}};
    default:  // nvfp4 and mxfp4: a byte a scale.
      return {{weights, {experts, rows, cols / 2}, "uint8", 1},
              {scales, {experts, rows, cols / p.group_size}, "uint8", 1}};
  }
}

std::vector<Part> PartsOfLayer(const lastflop_moe_problem& p) {
  std::vector<Part> parts =
      PartsOfWeight(p, "gate_up", "gate_up_scales", 2 * p.intermediate_size, p.hidden_size);
  const std::vector<Part> down =
      PartsOfWeight(p, "down", "down_scales", p.hidden_size, p.intermediate_size);
  parts.insert(parts.end(), down.begin(), down.end());
  return parts;
}

// Parts of a call, in this order.
enum CallPart { kIn, kIds, kWeights, kShared, kOut };

std::vector<Part> PartsOfCall(const lastflop_moe_problem& p) {
  return {{"input", {p.max_tokens, p.hidden_size}, "bf16", kBf16Bytes},
          {"expert_ids", {p.max_tokens, p.top_k}, "int32", 4},
          {"expert_weights", {p.max_tokens, p.top_k}, "float32", 4},
          {"shared",
           {p.has_shared != 0 ? p.max_tokens : 0, p.hidden_size},
           p.has_shared != 0 ? "bf16" : nullptr,
           kBf16Bytes},
          {"output", {p.max_tokens, p.hidden_size}, "bf16", kBf16Bytes}};
}

int32_t Say(absl::string_view text, char* reason, size_t reason_bytes) {
  std::snprintf(reason, reason_bytes, "%.*s", static_cast<int>(text.size()), text.data());
  return 1;
}

}  // namespace

// Memory that the process maps by this one's descriptor.
struct PythonPlugin::Segment {
  static absl::StatusOr<std::unique_ptr<Segment>> Make(size_t bytes) {
    auto segment = std::make_unique<Segment>();
    segment->fd = memfd_create("lastflop-python-plugin", MFD_CLOEXEC);
    if (segment->fd < 0 || ftruncate(segment->fd, static_cast<off_t>(bytes)) != 0) {
      return absl::InternalError(absl::StrCat("memfd_create: ", std::strerror(errno)));
    }
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0);
    if (memory == MAP_FAILED) {
      return absl::ResourceExhaustedError(
          absl::StrCat("mapping ", bytes, " bytes: ", std::strerror(errno)));
    }
    segment->data = static_cast<std::byte*>(memory);
    segment->bytes = bytes;
    return segment;
  }
  Segment() = default;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment() {
    if (data != nullptr) {
      munmap(data, bytes);
    }
    if (fd >= 0) {
      close(fd);
    }
  }
  std::string Path() const { return absl::StrCat("/proc/", getpid(), "/fd/", fd); }

  int fd = -1;
  std::byte* data = nullptr;
  size_t bytes = 0;
};

// A problem: the plugin's state is in the process under `id`.
struct PythonPlugin::Made {
  int64_t id = 0;
  lastflop_moe_problem problem{};
  std::vector<Part> parts;
  std::unique_ptr<Segment> call;
};

absl::StatusOr<std::shared_ptr<PythonPlugin>> PythonPlugin::Start(const std::string& file) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::InternalError(absl::StrCat("socketpair: ", std::strerror(errno)));
  }
  // A copy above kSocketFd: dup2 onto the same number would keep close-on-exec.
  const int theirs = fcntl(ends[1], F_DUPFD_CLOEXEC, kSocketFd + 1);
  close(ends[1]);
  const char* const chosen = std::getenv("LASTFLOP_PYTHON");
  const std::string program = chosen != nullptr && *chosen != '\0' ? chosen : "python3";
  const std::set<int> cores = CoresOfThreads();
  std::vector<std::string> arguments = {program,
                                        "-c",
                                        kPythonPluginHost,
                                        file,
                                        absl::StrCat(kSocketFd),
                                        absl::StrCat(getpid()),
                                        absl::StrJoin(cores, ",")};
  const std::string num_threads = absl::StrCat(cores.size());  // Of its libraries.
  std::vector<std::string> environment = MergedEnvironment({{"OMP_NUM_THREADS", num_threads},
                                                            {"OPENBLAS_NUM_THREADS", num_threads},
                                                            {"MKL_NUM_THREADS", num_threads}});
  std::vector<char*> argument_pointers = NullTerminated(arguments);
  std::vector<char*> environment_pointers = NullTerminated(environment);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, theirs, kSocketFd);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, program.c_str(), &actions, nullptr, argument_pointers.data(),
                                 environment_pointers.data());
  posix_spawn_file_actions_destroy(&actions);
  close(theirs);
  if (error != 0) {
    close(ends[0]);
    return absl::UnimplementedError(absl::StrCat(
        program, " cannot be started: ", std::strerror(error), "; LASTFLOP_PYTHON names another"));
  }
  std::shared_ptr<PythonPlugin> plugin(new PythonPlugin(pid, ends[0]));
  char reason[1024] = {};
  std::string reply;
  if (plugin->Demand("", reason, sizeof(reason), &reply) != 0) {
    return absl::UnimplementedError(absl::StrCat(file, ": ", reason));
  }
  plugin->title_ = json::parse(reply).at("ok").at("title").get<std::string>();
  return plugin;
}

PythonPlugin::~PythonPlugin() {
  close(socket_);  // The process ends when it reads this.
  for (int i = 0; end_.empty() && i < 100; ++i) {
    if (waitpid(pid_, nullptr, WNOHANG) != 0) {
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (end_.empty()) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

std::string PythonPlugin::DescribeEnd() {
  if (!end_.empty()) {
    return end_;
  }
  int status = 0;
  if (waitpid(pid_, &status, 0) != pid_) {
    end_ = "the Python process is gone";
  } else if (WIFSIGNALED(status)) {
    end_ = absl::StrCat("the Python process ended on signal ", WTERMSIG(status), " (",
                        strsignal(WTERMSIG(status)), ")");
  } else {
    end_ = absl::StrCat("the Python process ended with exit code ", WEXITSTATUS(status));
  }
  return end_;
}

absl::StatusOr<std::string> PythonPlugin::Ask(const std::string& request) {
  size_t sent = 0;
  while (end_.empty() && sent < request.size()) {
    const ssize_t count = send(socket_, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return absl::InternalError(DescribeEnd());
    }
    sent += static_cast<size_t>(count);
  }
  size_t newline = unread_.find('\n');
  while (newline == std::string::npos) {
    char bytes[4096];
    const ssize_t count = end_.empty() ? read(socket_, bytes, sizeof(bytes)) : 0;
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return absl::InternalError(DescribeEnd());
    }
    unread_.append(bytes, static_cast<size_t>(count));
    newline = unread_.find('\n');
  }
  std::string line = unread_.substr(0, newline);
  unread_.erase(0, newline + 1);
  return line;
}

int32_t PythonPlugin::Demand(const std::string& request, char* reason, size_t reason_bytes,
                             std::string* reply) {
  const absl::StatusOr<std::string> line = Ask(request);
  if (!line.ok()) {
    return Say(line.status().message(), reason, reason_bytes);
  }
  if (*line == "ok") {
    return 0;
  }
  const json parsed = json::parse(*line, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) {
    return Say(absl::StrCat("the Python process says ", *line), reason, reason_bytes);
  }
  for (const char* const why : {"refused", "failed"}) {
    if (parsed.contains(why)) {
      return Say(parsed[why].get<std::string>(), reason, reason_bytes);
    }
  }
  if (reply != nullptr) {
    *reply = *line;
  }
  return 0;
}

int32_t PythonPlugin::Query(const lastflop_moe_problem& problem, lastflop_moe_needs& needs,
                            char* reason, size_t reason_bytes) {
  if (problem.device != LASTFLOP_DEVICE_CPU) {
    return Say("plugins in Python run on the CPU backend", reason, reason_bytes);
  }
  needs.prepared_bytes = sizeof(int64_t);  // Which layer it is; the weights go to the process.
  return Demand(json{{"do", "query"}, {"problem", JsonOf(problem)}}.dump() + "\n", reason,
                reason_bytes);
}

int32_t PythonPlugin::Create(const lastflop_moe_problem& problem, void*& state, char* reason,
                             size_t reason_bytes) {
  auto made = std::make_unique<Made>();
  made->id = next_id_++;
  made->problem = problem;
  made->parts = PartsOfCall(problem);
  absl::StatusOr<std::unique_ptr<Segment>> segment = Segment::Make(Place(made->parts));
  if (!segment.ok()) {
    return Say(segment.status().message(), reason, reason_bytes);
  }
  made->call = *std::move(segment);
  const json request = {{"do", "create"},
                        {"id", made->id},
                        {"problem", JsonOf(problem)},
                        {"memory", made->call->Path()},
                        {"bytes", made->call->bytes},
                        {"arrays", JsonOf(made->parts)}};
  const int32_t failed = Demand(request.dump() + "\n", reason, reason_bytes);
  if (failed == 0) {
    state = made.release();
  }
  return failed;
}

void PythonPlugin::Destroy(void* state) {
  const std::unique_ptr<Made> made(static_cast<Made*>(state));
  if (made != nullptr) {
    char unused[8];
    Demand(json{{"do", "destroy"}, {"id", made->id}}.dump() + "\n", unused, sizeof(unused));
  }
}

int32_t PythonPlugin::Prepare(void* state, const lastflop_host& /*host*/,
                              const lastflop_moe_weights& weights, void* prepared, void* /*stream*/,
                              char* reason, size_t reason_bytes) {
  Made& made = *static_cast<Made*>(state);
  std::vector<Part> parts = PartsOfLayer(made.problem);
  absl::StatusOr<std::unique_ptr<Segment>> segment = Segment::Make(Place(parts));
  if (!segment.ok()) {
    return Say(segment.status().message(), reason, reason_bytes);
  }
  const void* const sources[] = {weights.gate_up, weights.gate_up_scales, weights.down,
                                 weights.down_scales};
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].dtype != nullptr) {
      std::memcpy((*segment)->data + parts[i].begin, sources[i], parts[i].bytes());
    }
  }
  const int64_t layer = num_layers_++;
  std::memcpy(prepared, &layer, sizeof(layer));
  // The process maps the memory; nothing here needs it any more.
  return Demand(json{{"do", "prepare"},
                     {"id", made.id},
                     {"layer", layer},
                     {"memory", (*segment)->Path()},
                     {"bytes", (*segment)->bytes},
                     {"arrays", JsonOf(parts)},
                     {"gate_up_tensor_scale", weights.gate_up_tensor_scale},
                     {"down_tensor_scale", weights.down_tensor_scale}}
                        .dump() +
                    "\n",
                reason, reason_bytes);
}

int32_t PythonPlugin::Run(void* state, const lastflop_host& /*host*/, const lastflop_moe_call& call,
                          char* reason, size_t reason_bytes) {
  Made& made = *static_cast<Made*>(state);
  const auto bytes_of = [&](CallPart part) {
    const std::vector<int64_t>& shape = made.parts[part].shape;
    return static_cast<size_t>(call.num_tokens * shape[1] * made.parts[part].value_bytes);
  };
  const auto place_of = [&](CallPart part) { return made.call->data + made.parts[part].begin; };
  std::memcpy(place_of(kIn), call.in, bytes_of(kIn));
  std::memcpy(place_of(kIds), call.expert_ids, bytes_of(kIds));
  std::memcpy(place_of(kWeights), call.expert_weights, bytes_of(kWeights));
  if (call.shared != nullptr) {
    std::memcpy(place_of(kShared), call.shared, bytes_of(kShared));
  }
  std::memset(place_of(kOut), kPoison, bytes_of(kOut));  // NaN: the last call's is no output.
  int64_t layer = 0;
  std::memcpy(&layer, call.prepared, sizeof(layer));
  if (Demand(absl::StrCat("run ", made.id, " ", layer, " ", call.num_tokens, "\n"), reason,
             reason_bytes) != 0) {
    return 1;
  }
  std::memcpy(call.out, place_of(kOut), bytes_of(kOut));
  return 0;
}

}  // namespace lastflop
