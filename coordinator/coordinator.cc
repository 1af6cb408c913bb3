#include "coordinator/coordinator.h"

#include <algorithm>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "db/schema.h"

namespace lastflop {
namespace {

absl::Status StoppingError() { return absl::UnavailableError("the coordinator is stopping"); }

// What a caller did wrong, as opposed to what the database could not do.
bool IsCallersFault(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsNotFound(status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Create(const std::string& database_path,
                                                                 const Clock& clock,
                                                                 CoordinatorOptions options) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::string file, ResolveDatabaseFile(database_path));
  LASTFLOP_RETURN_IF_ERROR(CheckIsDatabase(file));
  LASTFLOP_ASSIGN_OR_RETURN(FileLock lock, FileLock::Acquire(file));
  LASTFLOP_ASSIGN_OR_RETURN(Database database, Database::Open(file, Database::Mode::kReadWrite));
  LASTFLOP_RETURN_IF_ERROR(MigrateSchema(database));
  std::unique_ptr<Coordinator> coordinator(
      new Coordinator(file, clock, std::move(options), std::move(lock), std::move(database)));
  LASTFLOP_ASSIGN_OR_RETURN(
      coordinator->engine_,
      Engine::Create(coordinator->database_, clock, coordinator->options_, coordinator->events_));
  coordinator->thread_ = std::thread([raw = coordinator.get()] { raw->Loop(); });
  return coordinator;
}

Coordinator::Coordinator(std::string database_path, const Clock& clock, CoordinatorOptions options,
                         FileLock lock, Database database)
    : database_path_(std::move(database_path)),
      clock_(clock),
      options_(std::move(options)),
      lock_(std::move(lock)),
      database_(std::move(database)),
      database_identity_(IdentityOf(database_path_)) {}

Coordinator::~Coordinator() {
  Stop();
  if (thread_.joinable()) {
    thread_.join();
  }
}

absl::StatusOr<SubmitAnswer> Coordinator::Submit(Submission submission) {
  return Call<SubmitAnswer>(
      [submission = std::move(submission)](Engine& engine) { return engine.Submit(submission); });
}

absl::StatusOr<int> Coordinator::Cancel(const std::string& campaign_id) {
  return Call<int>([campaign_id](Engine& engine) { return engine.Cancel(campaign_id); });
}

absl::StatusOr<int> Coordinator::Resume(const std::string& campaign_id) {
  return Call<int>([campaign_id](Engine& engine) { return engine.Resume(campaign_id); });
}

std::vector<WorkerView> Coordinator::Workers() const {
  const std::lock_guard lock(mutex_);
  return workers_;
}

std::shared_ptr<WorkerSession> Coordinator::OpenSession(std::function<void()> cancel) {
  const std::lock_guard lock(mutex_);
  // Shared: the stream's threads and the deciding thread end in no fixed order.
  auto session =
      std::make_shared<WorkerSession>(++last_session_, clock_.Monotonic(), std::move(cancel));
  if (is_stopping_) {
    session->Close();
  } else {
    sessions_[session->id()] = session;
  }
  return session;
}

void Coordinator::Post(std::function<absl::Status(Engine&)> message) {
  Enqueue([message = std::move(message)](Engine* engine) {
    return engine == nullptr ? absl::OkStatus() : message(*engine);
  });
}

void Coordinator::CloseSession(const WorkerSession& session) {
  const SessionId id = session.id();
  {
    const std::lock_guard lock(mutex_);
    sessions_.erase(id);
  }
  Post([id](Engine& engine) { return engine.Disconnected(id); });
}

void Coordinator::ShutDownWorkers(std::string reason) {
  Post([reason = std::move(reason)](Engine& engine) {
    engine.ShutDownWorkers(reason);
    return absl::OkStatus();
  });
}

void Coordinator::Stop() {
  const std::lock_guard lock(mutex_);
  is_stopping_ = true;
  changed_.notify_all();
}

bool Coordinator::WaitUntilStopped(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return has_stopped_; });
}

absl::Status Coordinator::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void Coordinator::Loop() {
  const std::chrono::milliseconds period = std::clamp(
      options_.heartbeat / 4, std::chrono::milliseconds(5), std::chrono::milliseconds(100));
  absl::Status status;
  while (true) {
    std::vector<Task> tasks;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, period, [this] { return is_stopping_ || !inbox_.empty(); });
      if (is_stopping_) {
        break;
      }
      tasks = std::exchange(inbox_, {});
    }
    status = TakeTurn(tasks);
    for (const Task& task : tasks) {  // Those whose turn did not come.
      task(nullptr).IgnoreError();
    }
    if (!status.ok()) {
      break;
    }
    Deliver();
  }
  Fail(status);
}

absl::Status Coordinator::CheckDatabaseIsThere() const {
  return IdentityOf(database_path_) == database_identity_
             ? absl::OkStatus()
             : absl::DataLossError(absl::StrCat(
                   database_path_, ": was moved, deleted or replaced while results went into it"));
}

// Takes what it has handled out of `tasks`.
absl::Status Coordinator::TakeTurn(std::vector<Task>& tasks) {
  LASTFLOP_RETURN_IF_ERROR(CheckDatabaseIsThere());
  size_t num_handled = 0;
  absl::Status status;
  while (status.ok() && num_handled < tasks.size()) {
    status = tasks[num_handled++](engine_.get());
  }
  tasks.erase(tasks.begin(), tasks.begin() + static_cast<ptrdiff_t>(num_handled));
  LASTFLOP_RETURN_IF_ERROR(status);
  std::map<SessionId, std::chrono::milliseconds> last_seen;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, session] : sessions_) {
      last_seen[id] = session->last_seen();
    }
  }
  return engine_->Sweep(last_seen);
}

void Coordinator::Deliver() {
  std::vector<Outgoing> outgoing = engine_->TakeOutgoing();
  const std::vector<SessionId> replaced = engine_->TakeReplaced();
  std::vector<WorkerView> workers = engine_->Workers();
  std::map<SessionId, std::shared_ptr<WorkerSession>> sessions;
  {
    const std::lock_guard lock(mutex_);
    workers_ = std::move(workers);
    sessions = sessions_;
  }
  for (Outgoing& message : outgoing) {
    if (const auto session = sessions.find(message.session); session != sessions.end()) {
      const bool is_last = std::holds_alternative<RefusedMessage>(message.message);
      session->second->Push(std::move(message.message));
      if (is_last) {
        session->second->Close();
      }
    }
  }
  for (const SessionId id : replaced) {
    if (const auto session = sessions.find(id); session != sessions.end()) {
      session->second->Cancel();
    }
  }
}

void Coordinator::Fail(const absl::Status& status) {
  if (!status.ok()) {
    Log(LogSeverity::kError, "storage_failed", {{"reason", std::string(status.message())}});
  }
  events_.Stop(status);
  std::vector<Task> tasks;
  std::map<SessionId, std::shared_ptr<WorkerSession>> sessions;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    has_stopped_ = true;
    status_ = status;
    tasks = std::exchange(inbox_, {});
    sessions = std::exchange(sessions_, {});
    changed_.notify_all();
  }
  for (const Task& task : tasks) {
    task(nullptr).IgnoreError();
  }
  for (const auto& [id, session] : sessions) {
    session->Close();
  }
}

void Coordinator::Enqueue(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_stopping_) {
      inbox_.push_back(std::move(task));
      changed_.notify_all();
      return;
    }
  }
  task(nullptr).IgnoreError();
}

template <typename T>
absl::StatusOr<T> Coordinator::Call(std::function<absl::StatusOr<T>(Engine&)> function) {
  std::promise<absl::StatusOr<T>> answer;
  Enqueue([&answer, &function](Engine* engine) {
    absl::StatusOr<T> result = engine == nullptr ? StoppingError() : function(*engine);
    const absl::Status status = result.status();
    answer.set_value(std::move(result));
    return status.ok() || IsCallersFault(status) ? absl::OkStatus() : status;
  });
  return answer.get_future().get();
}

}  // namespace lastflop
