#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct sqlite3;
struct sqlite3_stmt;

namespace lastflop {

// One prepared statement. Not thread-safe; the database outlives it.
class Statement {
 public:
  // Values are bound left to right, from 1. A NULL is std::nullopt.
  Statement& Bind(int64_t value);
  Statement& Bind(int value) { return Bind(static_cast<int64_t>(value)); }
  Statement& Bind(bool value) { return Bind(static_cast<int64_t>(value)); }
  Statement& Bind(double value);
  Statement& Bind(absl::string_view text);
  Statement& Bind(const std::string& text) { return Bind(absl::string_view(text)); }
  Statement& Bind(const char* text) { return Bind(absl::string_view(text)); }
  Statement& Bind(std::nullopt_t null);
  template <typename T>
  Statement& Bind(const std::optional<T>& value) {
    return value.has_value() ? Bind(*value) : Bind(std::nullopt);
  }

  // True: a row is there to be read. False: no further row, and the statement can be bound anew.
  // An error of an earlier Bind() comes out here.
  absl::StatusOr<bool> Step();

  // For a statement that gives no rows: how many it changed.
  absl::StatusOr<int> Run();

  // Columns of the current row, from 0. A NULL reads as 0 or "".
  bool IsNull(int column) const;
  int64_t Integer(int column) const;
  bool Boolean(int column) const { return Integer(column) != 0; }
  double Real(int column) const;
  std::string Text(int column) const;

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  void Reset();

  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int num_bound_ = 0;
  int bind_error_ = 0;
};

// A connection to one SQLite file with foreign keys on, WAL and a busy timeout. Not thread-safe.
//
// Errors: Unavailable when another process held the write lock for longer than the busy timeout;
// ResourceExhausted for a full disk; FailedPrecondition for a file that is read-only or no
// database; AlreadyExists for a row that a constraint forbids; else Internal.
class Database {
 public:
  enum class Mode { kReadWrite, kReadOnly };
  static constexpr std::chrono::milliseconds kBusyTimeout{30000};

  // ":memory:" is, for kReadWrite, a database of this connection alone; else see
  // ResolveDatabaseFile(). kReadWrite creates a file that is not there;
  // kReadOnly is NotFound then, and leaves no file beside a database at rest, so that one in a
  // folder that nobody may write can be read. The schema is not touched: see db/schema.h.
  static absl::StatusOr<Database> Open(const std::string& path, Mode mode,
                                       std::chrono::milliseconds busy_timeout = kBusyTimeout);

  absl::StatusOr<Statement> Prepare(absl::string_view sql);

  // Prepares, binds and runs a statement that gives no rows: how many it changed.
  template <typename... Values>
  absl::StatusOr<int> Execute(absl::string_view sql, const Values&... values) {
    absl::StatusOr<Statement> statement = Prepare(sql);
    if (!statement.ok()) {
      return statement.status();
    }
    (statement->Bind(values), ...);
    return statement->Run();
  }

  // Runs several statements without values.
  absl::Status ExecuteScript(const std::string& sql);

  const std::string& path() const { return path_; }

 private:
  friend class Transaction;
  struct Close {
    void operator()(sqlite3* connection) const;
  };
  Database(sqlite3* connection, std::string path)
      : connection_(connection), path_(std::move(path)) {}

  std::unique_ptr<sqlite3, Close> connection_;
  std::string path_;
};

// A write transaction: rolled back by the destructor unless it was committed. Begin() takes the
// write lock at once, so that a transaction waits at its start and never fails half-way for a lock.
class Transaction {
 public:
  static absl::StatusOr<Transaction> Begin(Database& database);
  // One snapshot for several reads; it takes no lock.
  static absl::StatusOr<Transaction> BeginRead(Database& database);
  Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();

  absl::Status Commit();

 private:
  explicit Transaction(Database& database) : database_(&database) {}
  Database* database_;  // Outlives this; null when done.
};

}  // namespace lastflop
