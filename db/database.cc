#include "db/database.h"

#include <sqlite3.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status_macros.h"
#include "db/database_file.h"
#include "db/file_lock.h"

namespace lastflop {
namespace {

absl::StatusCode CodeOf(int sqlite_code) {
  switch (sqlite_code & 0xFF) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::StatusCode::kUnavailable;
    case SQLITE_FULL:
      return absl::StatusCode::kResourceExhausted;
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_NOTADB:
    case SQLITE_PERM:
      return absl::StatusCode::kFailedPrecondition;
    case SQLITE_CONSTRAINT:
      return absl::StatusCode::kAlreadyExists;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status ErrorOf(sqlite3* connection, int code, absl::string_view doing) {
  const char* file = connection != nullptr ? sqlite3_db_filename(connection, "main") : nullptr;
  if (const int kind = code & 0xFF; kind == SQLITE_CORRUPT || kind == SQLITE_NOTADB) {
    // The statement that found it has nothing to do with it.
    return absl::Status(
        CodeOf(code),
        absl::StrCat(file != nullptr ? file : "",
                     kind == SQLITE_NOTADB ? ": is no database" : ": the database is damaged", " (",
                     sqlite3_errstr(code), ")"));
  }
  return absl::Status(
      CodeOf(code),
      absl::StrCat(doing, file != nullptr && *file != '\0' ? " in " : "",
                   file != nullptr ? file : "", ": ",
                   connection != nullptr ? sqlite3_errmsg(connection) : sqlite3_errstr(code)));
}

// A file that nobody writes, and of which nothing stands in a log beside it, is read as it is:
// in WAL mode SQLite would make two files beside it to read it, which a folder may forbid, and
// leave them there. Anybody may open it for writing a moment later; a reader takes seconds.
bool IsAtRest(const std::string& path) {
  std::error_code error;
  const auto log_bytes = std::filesystem::file_size(path + "-wal", error);
  return (error || log_bytes == 0) && std::filesystem::exists(path, error) &&
         !FileLock::IsHeld(path);
}

// The name of a file as a URI, with what would end a name escaped. An absolute one has an empty
// authority before it: its own first slashes would be taken for one.
std::string ImmutableUri(const std::string& path) {
  return absl::StrCat(path[0] == '/' ? "file://" : "file:",
                      absl::StrReplaceAll(path, {{"%", "%25"}, {"?", "%3f"}, {"#", "%23"}}),
                      "?immutable=1");
}

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Statement& Statement::Bind(int64_t value) {
  if (const int code = sqlite3_bind_int64(statement_.get(), ++num_bound_, value); code != 0) {
    bind_error_ = code;
  }
  return *this;
}

Statement& Statement::Bind(double value) {
  if (const int code = sqlite3_bind_double(statement_.get(), ++num_bound_, value); code != 0) {
    bind_error_ = code;
  }
  return *this;
}

Statement& Statement::Bind(absl::string_view text) {
  // A null pointer would bind NULL.
  const char* data = text.data() != nullptr ? text.data() : "";
  if (const int code = sqlite3_bind_text64(statement_.get(), ++num_bound_, data, text.size(),
                                           SQLITE_TRANSIENT, SQLITE_UTF8);
      code != 0) {
    bind_error_ = code;
  }
  return *this;
}

Statement& Statement::Bind(std::nullopt_t /*null*/) {
  if (const int code = sqlite3_bind_null(statement_.get(), ++num_bound_); code != 0) {
    bind_error_ = code;
  }
  return *this;
}

absl::StatusOr<bool> Statement::Step() {
  sqlite3* connection = sqlite3_db_handle(statement_.get());
  const int expected = sqlite3_bind_parameter_count(statement_.get());
  if (bind_error_ != 0 || num_bound_ != expected) {
    const std::string sql = sqlite3_sql(statement_.get());
    const int num_bound = num_bound_;
    Reset();
    return absl::InternalError(
        absl::StrCat("bind ", num_bound, " values of ", expected, ": ", sql));
  }
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) {
    return true;
  }
  const absl::Status status =
      code == SQLITE_DONE ? absl::OkStatus() : ErrorOf(connection, code, "write or read a row");
  Reset();
  if (!status.ok()) {
    return status;
  }
  return false;
}

absl::StatusOr<int> Statement::Run() {
  sqlite3* connection = sqlite3_db_handle(statement_.get());
  LASTFLOP_ASSIGN_OR_RETURN(const bool has_row, Step());
  if (has_row) {
    const std::string sql = sqlite3_sql(statement_.get());
    Reset();
    return absl::InternalError(absl::StrCat("a statement to run gave a row: ", sql));
  }
  return sqlite3_changes(connection);
}

void Statement::Reset() {
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
  num_bound_ = 0;
  bind_error_ = 0;
}

bool Statement::IsNull(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

int64_t Statement::Integer(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

double Statement::Real(int column) const { return sqlite3_column_double(statement_.get(), column); }

std::string Statement::Text(int column) const {
  const unsigned char* text = sqlite3_column_text(statement_.get(), column);
  const int num_bytes = sqlite3_column_bytes(statement_.get(), column);
  return text == nullptr
             ? std::string()
             : std::string(reinterpret_cast<const char*>(text), static_cast<size_t>(num_bytes));
}

void Database::Close::operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }

absl::StatusOr<Database> Database::Open(const std::string& path, Mode mode,
                                        std::chrono::milliseconds busy_timeout) {
  const bool is_in_memory = mode == Mode::kReadWrite && path == ":memory:";
  std::string file = path;
  if (!is_in_memory) {
    LASTFLOP_ASSIGN_OR_RETURN(file, ResolveDatabaseFile(path));
  }
  sqlite3* connection = nullptr;
  const int flags =
      mode == Mode::kReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  const bool is_immutable = mode == Mode::kReadOnly && IsAtRest(file);
  const std::string name = is_immutable ? ImmutableUri(file) : file;
  const int code =
      sqlite3_open_v2(name.c_str(), &connection,
                      flags | SQLITE_OPEN_NOMUTEX | (is_immutable ? SQLITE_OPEN_URI : 0), nullptr);
  Database database(connection, path);
  if (code != SQLITE_OK) {
    const absl::Status status = ErrorOf(connection, code, absl::StrCat("open the database ", path));
    return mode == Mode::kReadOnly && (code & 0xFF) == SQLITE_CANTOPEN
               ? absl::NotFoundError(status.message())
               : status;
  }
  sqlite3_extended_result_codes(connection, 1);
  sqlite3_busy_timeout(connection, static_cast<int>(busy_timeout.count()));
  LASTFLOP_RETURN_IF_ERROR(database.ExecuteScript("PRAGMA foreign_keys = ON"));
  if (mode == Mode::kReadWrite) {
    // FULL: what was acknowledged survives the host's power, not only the process.
    LASTFLOP_RETURN_IF_ERROR(
        database.ExecuteScript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL"));
  }
  return database;
}

absl::StatusOr<Statement> Database::Prepare(absl::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(connection_.get(), sql.data(), static_cast<int>(sql.size()),
                                      &statement, nullptr);
  if (code != SQLITE_OK) {
    return ErrorOf(connection_.get(), code, absl::StrCat("prepare \"", sql, "\""));
  }
  return Statement(statement);
}

absl::Status Database::ExecuteScript(const std::string& sql) {
  const int code = sqlite3_exec(connection_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : ErrorOf(connection_.get(), code, "run a script");
}

absl::StatusOr<Transaction> Transaction::Begin(Database& database) {
  LASTFLOP_RETURN_IF_ERROR(database.ExecuteScript("BEGIN IMMEDIATE"));
  return Transaction(database);
}

absl::StatusOr<Transaction> Transaction::BeginRead(Database& database) {
  LASTFLOP_RETURN_IF_ERROR(database.ExecuteScript("BEGIN DEFERRED"));
  return Transaction(database);
}

Transaction::~Transaction() {
  if (database_ != nullptr) {
    // SQLite has rolled back by itself after a full disk, and there is nothing to do about an
    // error.
    sqlite3_exec(database_->connection_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
  }
}

absl::Status Transaction::Commit() {
  LASTFLOP_RETURN_IF_ERROR(database_->ExecuteScript("COMMIT"));
  database_ = nullptr;
  return absl::OkStatus();
}

}  // namespace lastflop
