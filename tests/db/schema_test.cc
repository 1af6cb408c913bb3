#include "db/schema.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lastflop {
namespace {

Database OpenMemory() {
  absl::StatusOr<Database> database = Database::Open(":memory:", Database::Mode::kReadWrite);
  EXPECT_TRUE(database.ok()) << database.status();
  return std::move(*database);
}

int64_t Query(Database& database, absl::string_view sql) {
  absl::StatusOr<Statement> row = database.Prepare(sql);
  EXPECT_TRUE(row.ok()) << row.status();
  const absl::StatusOr<bool> has_row = row->Step();
  EXPECT_TRUE(has_row.ok() && *has_row) << has_row.status();
  return row->Integer(0);
}

TEST(SchemaTest, FilesAreNumberedWithoutAGap) {
  int number = 0;
  for (const SchemaFile& file : SchemaFiles()) {
    EXPECT_EQ(file.name.substr(0, 5), absl::StrFormat("%04d_", ++number));
  }
  EXPECT_GE(number, 2);
}

TEST(SchemaTest, EveryTableIsStrict) {
  Database database = OpenMemory();
  ASSERT_TRUE(MigrateSchema(database).ok());
  EXPECT_EQ(Query(database,
                  "SELECT count(*) FROM pragma_table_list WHERE type = 'table' AND "
                  "schema = 'main' AND name NOT LIKE 'sqlite_%' AND strict = 0"),
            0);
  EXPECT_EQ(Query(database, "PRAGMA foreign_keys"), 1);
}

TEST(SchemaTest, BringsADatabaseOfEveryOlderVersionUpAndKeepsItsRows) {
  const std::span<const SchemaFile> files = SchemaFiles();
  for (size_t version = 1; version < files.size(); ++version) {
    Database database = OpenMemory();
    ASSERT_TRUE(MigrateSchema(database, files.first(version)).ok());
    ASSERT_TRUE(database
                    .ExecuteScript("INSERT INTO campaigns (campaign_id, submission_id, name, "
                                   "state, campaign_json, source_yaml, source_name, "
                                   "created_at_ms, resumed_at_ms, wall_from_ms) "
                                   "VALUES ('c1', 's1', 'old', 'done', '{}', '', '', 1, 1, 1)")
                    .ok());
    EXPECT_EQ(CheckSchema(database).code(), absl::StatusCode::kFailedPrecondition);
    const absl::Status status = MigrateSchema(database);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(CheckSchema(database).ok());
    EXPECT_EQ(Query(database, "SELECT count(*) FROM campaigns WHERE name = 'old'"), 1);
    EXPECT_EQ(Query(database, "SELECT count(*) FROM events"), 0);
    EXPECT_TRUE(MigrateSchema(database).ok()) << "a second time changes nothing";
  }
}

TEST(SchemaTest, RefusesADatabaseFromTheFuture) {
  Database database = OpenMemory();
  ASSERT_TRUE(MigrateSchema(database).ok());
  ASSERT_TRUE(database.ExecuteScript("PRAGMA user_version = 99").ok());
  const absl::Status status = MigrateSchema(database);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("schema 99"), absl::string_view::npos) << status;
  EXPECT_EQ(CheckSchema(database).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(SchemaTest, AFileThatFailsLeavesTheVersionBeforeIt) {
  Database database = OpenMemory();
  const SchemaFile files[] = {{"0001_a.sql", "CREATE TABLE a (x INTEGER) STRICT"},
                              {"0002_b.sql", "CREATE TABLE b (x INTEGER) STRICT; NONSENSE"}};
  const absl::Status status = MigrateSchema(database, files);
  EXPECT_NE(status.message().find("0002_b.sql"), absl::string_view::npos) << status;
  EXPECT_EQ(Query(database, "PRAGMA user_version"), 1);
  EXPECT_EQ(Query(database, "SELECT count(*) FROM sqlite_schema WHERE name = 'b'"), 0);
}

}  // namespace
}  // namespace lastflop
