#include "kernels/kernel_table.h"

#include <filesystem>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace lastflop {
namespace {

TEST(KernelTableTest, HasEveryKernelFolderOnce) {
  std::set<std::string> listed;
  for (const KernelInfo& kernel : KernelTable()) {
    EXPECT_TRUE(listed.emplace(kernel.name).second) << kernel.name << " is listed twice";
    EXPECT_FALSE(kernel.ops.empty());
    EXPECT_FALSE(kernel.summary.empty());
  }
  for (const auto& entry : std::filesystem::directory_iterator("kernels")) {
    const std::string folder = entry.path().filename();
    if (entry.is_directory() && folder != "cpu" && folder != "cuda") {
      EXPECT_TRUE(listed.contains(folder)) << "kernels/" << folder << " has no line in the table";
      listed.erase(folder);
    }
  }
  EXPECT_TRUE(listed.empty()) << *listed.begin() << " has no folder";
}

}  // namespace
}  // namespace lastflop
