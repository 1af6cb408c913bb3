#include "db/database.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/db/some_campaign.h"

namespace lastflop {
namespace {

Database Open(const std::string& path,
              std::chrono::milliseconds busy_timeout = std::chrono::milliseconds(30000)) {
  absl::StatusOr<Database> database =
      Database::Open(path, Database::Mode::kReadWrite, busy_timeout);
  if (!database.ok()) {
    ADD_FAILURE() << database.status();
    abort();
  }
  return std::move(*database);
}

TEST(DatabaseTest, BindsAndReadsEveryType) {
  Database database = Open(":memory:");
  ASSERT_TRUE(
      database.ExecuteScript("CREATE TABLE t (a INTEGER, b REAL, c TEXT, d TEXT) STRICT").ok());
  const std::string text("nul \0 inside", 12);
  const absl::StatusOr<int> num_rows = database.Execute("INSERT INTO t VALUES (?1, ?2, ?3, ?4)",
                                                        int64_t{1} << 62, 0.1, text, std::nullopt);
  ASSERT_TRUE(num_rows.ok()) << num_rows.status();
  EXPECT_EQ(*num_rows, 1);
  absl::StatusOr<Statement> row = database.Prepare("SELECT a, b, c, d FROM t");
  ASSERT_TRUE(row.ok());
  ASSERT_TRUE(*row->Step());
  EXPECT_EQ(row->Integer(0), int64_t{1} << 62);
  EXPECT_EQ(row->Real(1), 0.1);
  EXPECT_EQ(row->Text(2), text);
  EXPECT_TRUE(row->IsNull(3));
  EXPECT_FALSE(*row->Step());
}

TEST(DatabaseTest, AForgottenValueIsAnErrorNotANull) {
  Database database = Open(":memory:");
  ASSERT_TRUE(database.ExecuteScript("CREATE TABLE t (a INTEGER) STRICT").ok());
  EXPECT_EQ(database.Execute("INSERT INTO t VALUES (?1)").status().code(),
            absl::StatusCode::kInternal);
}

TEST(DatabaseTest, ATransactionThatIsNotCommittedLeavesNothing) {
  Database database = Open(":memory:");
  ASSERT_TRUE(database.ExecuteScript("CREATE TABLE t (a INTEGER) STRICT").ok());
  {
    absl::StatusOr<Transaction> transaction = Transaction::Begin(database);
    ASSERT_TRUE(transaction.ok());
    ASSERT_TRUE(database.Execute("INSERT INTO t VALUES (1)").ok());
  }
  absl::StatusOr<Statement> rows = database.Prepare("SELECT a FROM t");
  EXPECT_FALSE(*rows->Step());
}

TEST(DatabaseTest, WaitsForAForeignWriterAndReadersWaitForNobody) {
  const TemporaryFile file("x.db");
  Database database = Open(file.path());
  ASSERT_TRUE(database.ExecuteScript("CREATE TABLE t (a INTEGER) STRICT").ok());
  Database foreign = Open(file.path());
  ASSERT_TRUE(foreign.ExecuteScript("BEGIN IMMEDIATE").ok());

  absl::StatusOr<Database> reader = Database::Open(file.path(), Database::Mode::kReadOnly);
  ASSERT_TRUE(reader.ok()) << reader.status();
  absl::StatusOr<Statement> rows = reader->Prepare("SELECT a FROM t");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_FALSE(*rows->Step());

  absl::StatusOr<int> num_rows = absl::InternalError("not run");
  std::thread writer([&] { num_rows = database.Execute("INSERT INTO t VALUES (1)"); });
  ASSERT_TRUE(foreign.ExecuteScript("COMMIT").ok());
  writer.join();
  EXPECT_TRUE(num_rows.ok()) << num_rows.status();
}

TEST(DatabaseTest, AWriterThatWaitedInVainIsToldToRetry) {
  const TemporaryFile file("x.db");
  Database database = Open(file.path(), std::chrono::milliseconds(1));
  Database foreign = Open(file.path());
  ASSERT_TRUE(foreign.ExecuteScript("BEGIN IMMEDIATE").ok());
  EXPECT_EQ(Transaction::Begin(database).status().code(), absl::StatusCode::kUnavailable);
}

TEST(DatabaseTest, AFullDiskIsResourceExhausted) {
  const TemporaryFile file("x.db");
  Database database = Open(file.path());
  ASSERT_TRUE(database.ExecuteScript("CREATE TABLE t (a TEXT) STRICT").ok());
  ASSERT_TRUE(database.ExecuteScript("PRAGMA max_page_count = 10").ok());
  const absl::Status status =
      database.Execute("INSERT INTO t VALUES (?1)", std::string(1 << 20, 'x')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

TEST(DatabaseTest, ANamelessFileAndAFolderAreNoDatabases) {
  EXPECT_EQ(Database::Open("", Database::Mode::kReadWrite).status().code(),
            absl::StatusCode::kInvalidArgument);
  for (const Database::Mode mode : {Database::Mode::kReadWrite, Database::Mode::kReadOnly}) {
    EXPECT_EQ(Database::Open(testing::TempDir(), mode).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
}

TEST(DatabaseTest, ReadsARunningDatabaseThroughALink) {
  const TemporaryFile file("x.db");
  Database writer = Open(file.path());
  ASSERT_TRUE(writer.ExecuteScript("CREATE TABLE t (a TEXT) STRICT").ok());
  const std::string link = file.folder() + "/link.db";
  std::filesystem::create_symlink(file.path(), link);
  absl::StatusOr<Database> reader = Database::Open(link, Database::Mode::kReadOnly);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE(reader->Prepare("SELECT a FROM t").ok()) << "the table is in the log of x.db";
}

TEST(DatabaseTest, RefusesWhatSharesNoLogAndWhatIsNoFile) {
  const TemporaryFile file("x.db");
  { Open(file.path()).ExecuteScript("CREATE TABLE t (a TEXT) STRICT").IgnoreError(); }
  const std::string twin = file.folder() + "/twin.db";
  std::filesystem::create_hard_link(file.path(), twin);
  const std::string to_nothing = file.folder() + "/to_nothing.db";
  std::filesystem::create_symlink(file.folder() + "/nothing.db", to_nothing);
  for (const std::string& path : {twin, file.path(), to_nothing, std::string("/dev/null")}) {
    for (const Database::Mode mode : {Database::Mode::kReadWrite, Database::Mode::kReadOnly}) {
      EXPECT_EQ(Database::Open(path, mode).status().code(), absl::StatusCode::kFailedPrecondition)
          << path;
    }
  }
}

// Root writes to files that nobody may write to: this thread not, as long as this lives.
class NoRightToAllFiles {
 public:
  NoRightToAllFiles() {
    EXPECT_EQ(syscall(SYS_capget, &header_, before_.data()), 0);
    Data now = before_;
    now[0].effective &= ~(1U << CAP_DAC_OVERRIDE);
    EXPECT_EQ(syscall(SYS_capset, &header_, now.data()), 0);
  }
  ~NoRightToAllFiles() { EXPECT_EQ(syscall(SYS_capset, &header_, before_.data()), 0); }
  NoRightToAllFiles(const NoRightToAllFiles&) = delete;
  NoRightToAllFiles& operator=(const NoRightToAllFiles&) = delete;

 private:
  using Data = std::array<__user_cap_data_struct, 2>;
  __user_cap_header_struct header_{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  Data before_{};
};

TEST(DatabaseTest, AReadOnlyFileIsSaidToBeOne) {
  const TemporaryFile file("x.db");
  { Open(file.path()).ExecuteScript("CREATE TABLE t (a TEXT) STRICT").IgnoreError(); }
  chmod(file.path().c_str(), 0444);
  chmod(file.folder().c_str(), 0555);
  absl::StatusOr<Database> database = absl::UnknownError("not opened");
  {
    const NoRightToAllFiles as_its_owner;
    ASSERT_EQ(open(file.path().c_str(), O_WRONLY | O_CLOEXEC), -1);
    database = Database::Open(file.path(), Database::Mode::kReadWrite);
  }
  chmod(file.folder().c_str(), 0755);
  EXPECT_EQ(database.status().code(), absl::StatusCode::kFailedPrecondition) << database.status();
}

TEST(DatabaseTest, ReadingADatabaseAtRestMakesNoFileBesideIt) {
  const TemporaryFile file("a?b%41#c.db");
  {
    Database database = Open(file.path());
    ASSERT_TRUE(database.ExecuteScript("CREATE TABLE t (a TEXT) STRICT").ok());
  }
  absl::StatusOr<Database> reader = Database::Open(file.path(), Database::Mode::kReadOnly);
  ASSERT_TRUE(reader.ok()) << reader.status();
  absl::StatusOr<Statement> rows = reader->Prepare("SELECT a FROM t");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_FALSE(*rows->Step());
  EXPECT_FALSE(std::filesystem::exists(file.path() + "-wal"));
  EXPECT_FALSE(std::filesystem::exists(file.path() + "-shm"));
}

TEST(DatabaseTest, ReadsWhatACrashLeftInTheLog) {
  const TemporaryFile file("x.db");
  Database database = Open(file.path());
  ASSERT_TRUE(database.ExecuteScript("CREATE TABLE t (a TEXT) STRICT").ok());
  const TemporaryFile copy("y.db");
  for (const char* part : {"", "-wal"}) {
    std::filesystem::copy_file(file.path() + part, copy.path() + part);
  }
  absl::StatusOr<Database> reader = Database::Open(copy.path(), Database::Mode::kReadOnly);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE(reader->Prepare("SELECT a FROM t").ok());
}

TEST(DatabaseTest, ADamagedFileIsCalledOneWithoutAWordOfSql) {
  const TemporaryFile file("x.db");
  std::ofstream(file.path()) << std::string(8192, 'x');
  absl::StatusOr<Database> database = Database::Open(file.path(), Database::Mode::kReadOnly);
  const absl::Status status =
      database.ok() ? database->Prepare("SELECT a FROM t").status() : database.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find(file.path() + ": is no database"), absl::string_view::npos)
      << status;
  EXPECT_EQ(status.message().find("SELECT"), absl::string_view::npos) << status;
}

TEST(DatabaseTest, ReadingAFileThatIsNotThereDoesNotMakeIt) {
  const TemporaryFile file("x.db");
  EXPECT_EQ(Database::Open(file.path(), Database::Mode::kReadOnly).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(file.path()));
}

}  // namespace
}  // namespace lastflop
