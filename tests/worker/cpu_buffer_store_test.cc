#include "worker/cpu_buffer_store.h"

#include "gtest/gtest.h"

namespace lastflop {
namespace {

TEST(CpuBufferStoreTest, SharesEqualKeysAndFillsOnce) {
  CpuBufferStore store(1e6);
  int num_fills = 0;
  const auto fill = [&](AlignedBuffer& /*buffer*/) {
    ++num_fills;
    return absl::OkStatus();
  };
  const auto first = store.Get("a", 100, fill);
  const auto second = store.Get("a", 100, fill);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->get(), second->get());
  EXPECT_EQ(num_fills, 1);
}

TEST(CpuBufferStoreTest, DropsTheLeastRecentlyUsedOfWhatNoArmUses) {
  CpuBufferStore store(300);
  int num_fills = 0;
  const auto fill = [&](AlignedBuffer& /*buffer*/) {
    ++num_fills;
    return absl::OkStatus();
  };
  const auto held = store.Get("held", 100, fill);
  ASSERT_TRUE(store.Get("old", 100, fill).ok());
  ASSERT_TRUE(store.Get("new", 100, fill).ok());
  ASSERT_TRUE(store.Get("old", 100, fill).ok());  // Now "new" is the older one.
  ASSERT_TRUE(store.Get("more", 100, fill).ok());
  EXPECT_EQ(store.bytes_held(), 300);
  EXPECT_EQ(num_fills, 4);
  ASSERT_TRUE(store.Get("old", 100, fill).ok());
  EXPECT_EQ(num_fills, 4);
  ASSERT_TRUE(store.Get("new", 100, fill).ok());
  EXPECT_EQ(num_fills, 5);
}

TEST(CpuBufferStoreTest, LeavesRoomForWhatIsAllocatedBeside) {
  CpuBufferStore store(300);
  const auto fill = [](AlignedBuffer& /*buffer*/) { return absl::OkStatus(); };
  const auto held = store.Get("held", 100, fill);
  ASSERT_TRUE(store.Get("unused", 100, fill).ok());
  EXPECT_TRUE(store.Reserve(150));
  EXPECT_EQ(store.bytes_held(), 100) << "the unused one made room";
  EXPECT_FALSE(store.Get("more", 100, fill).ok());
  EXPECT_FALSE(store.Reserve(250));
  EXPECT_TRUE(store.Reserve(0));
  EXPECT_TRUE(store.Get("more", 100, fill).ok());
}

TEST(CpuBufferStoreTest, RefusesWhatDoesNotFitBesideWhatIsInUse) {
  CpuBufferStore store(150);
  const auto fill = [](AlignedBuffer& /*buffer*/) { return absl::OkStatus(); };
  const auto held = store.Get("held", 100, fill);
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(store.Get("more", 100, fill).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(CpuBufferStoreTest, KeepsNothingOfWhatCouldNotBeFilled) {
  CpuBufferStore store(150);
  const auto fail = [](AlignedBuffer& /*buffer*/) { return absl::InternalError("no data"); };
  EXPECT_EQ(store.Get("a", 100, fail).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(store.bytes_held(), 0);
  EXPECT_TRUE(store.Get("a", 100, [](AlignedBuffer& /*buffer*/) { return absl::OkStatus(); }).ok());
}

}  // namespace
}  // namespace lastflop
