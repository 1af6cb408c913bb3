#include "worker/plugin_watch.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lastflop {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kWhereBytes = 512;

// The host's monotonic clock, which all of its processes share.
int64_t NowNanos() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

std::shared_ptr<int> Owned(int fd) {
  return std::shared_ptr<int>(new int(fd), [](int* owned) {
    close(*owned);
    delete owned;
  });
}

}  // namespace

// Zero in fresh memory: outside of plugins. `where` is written before `since_ns` is set.
struct PluginWatch::Page {
  std::atomic<int64_t> since_ns;
  char where[kWhereBytes];
};

absl::StatusOr<PluginWatch> PluginWatch::Map(std::shared_ptr<int> fd) {
  void* memory = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
  if (memory == MAP_FAILED) {
    return absl::InternalError(absl::StrCat("mapping a plugin watch: ", std::strerror(errno)));
  }
  static_assert(std::atomic<int64_t>::is_always_lock_free && sizeof(Page) <= kPageBytes);
  std::shared_ptr<Page> page(static_cast<Page*>(memory),
                             [](Page* mapped) { munmap(mapped, kPageBytes); });
  return PluginWatch(std::move(fd), std::move(page));
}

absl::StatusOr<PluginWatch> PluginWatch::Create() {
  const int fd = memfd_create("lastflop-plugin-watch", MFD_CLOEXEC);
  if (fd < 0) {
    return absl::InternalError(absl::StrCat("memfd_create: ", std::strerror(errno)));
  }
  std::shared_ptr<int> owned = Owned(fd);
  if (ftruncate(fd, kPageBytes) != 0) {
    return absl::InternalError(absl::StrCat("ftruncate: ", std::strerror(errno)));
  }
  return Map(std::move(owned));
}

absl::StatusOr<PluginWatch> PluginWatch::Attach(int fd) { return Map(Owned(fd)); }

PluginWatch::Call::Call(const PluginWatch* watch, absl::string_view where) : watch_(watch) {
  if (watch_ == nullptr) {
    return;
  }
  Page& page = *watch_->page_;
  const size_t size = where.copy(page.where, kWhereBytes - 1);
  page.where[size] = '\0';
  page.since_ns.store(NowNanos(), std::memory_order_release);
}

PluginWatch::Call::~Call() {
  if (watch_ != nullptr) {
    watch_->page_->since_ns.store(0, std::memory_order_release);
  }
}

PluginWatch::Place PluginWatch::Current() const {
  const int64_t since_ns = page_->since_ns.load(std::memory_order_acquire);
  if (since_ns == 0) {
    return {};
  }
  Place place;
  place.where.assign(page_->where, strnlen(page_->where, kWhereBytes));
  place.since = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::nanoseconds(std::max<int64_t>(0, NowNanos() - since_ns)));
  return place;
}

}  // namespace lastflop
