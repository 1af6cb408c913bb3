#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "plugin/lastflop_plugin.h"

namespace lastflop {

// The functions of one plugin, wherever they run: what lastflop_plugin.h says of the table's
// members of the same names holds of them.
class PluginFunctions {
 public:
  virtual ~PluginFunctions() = default;

  virtual std::string title() const = 0;
  virtual bool has_prepare() const = 0;
  // Whether calls may have memory of a device, which a process of its own does not see.
  virtual bool takes_device_memory() const = 0;
  virtual int32_t Query(const lastflop_moe_problem& problem, lastflop_moe_needs& needs,
                        char* reason, size_t reason_bytes) = 0;
  virtual int32_t Create(const lastflop_moe_problem& problem, void*& state, char* reason,
                         size_t reason_bytes) = 0;
  virtual void Destroy(void* state) = 0;
  virtual int32_t Prepare(void* state, const lastflop_host& host,
                          const lastflop_moe_weights& weights, void* prepared, void* stream,
                          char* reason, size_t reason_bytes) = 0;
  virtual int32_t Run(void* state, const lastflop_host& host, const lastflop_moe_call& call,
                      char* reason, size_t reason_bytes) = 0;
};

// Those of a library's table, which lives as long as the process.
class NativePluginFunctions final : public PluginFunctions {
 public:
  // `table` has query() and run(). `name` is the title of a table without one.
  NativePluginFunctions(const lastflop_plugin& table, const std::string& name)
      : table_(table), title_(table.title == nullptr ? name : table.title) {}

  std::string title() const override { return title_; }
  bool has_prepare() const override { return table_.prepare != nullptr; }
  bool takes_device_memory() const override { return true; }
  int32_t Query(const lastflop_moe_problem& problem, lastflop_moe_needs& needs, char* reason,
                size_t reason_bytes) override {
    return table_.query(&problem, &needs, reason, reason_bytes);
  }
  int32_t Create(const lastflop_moe_problem& problem, void*& state, char* reason,
                 size_t reason_bytes) override {
    return table_.create == nullptr ? 0 : table_.create(&problem, &state, reason, reason_bytes);
  }
  void Destroy(void* state) override {
    if (state != nullptr && table_.destroy != nullptr) {
      table_.destroy(state);
    }
  }
  int32_t Prepare(void* state, const lastflop_host& host, const lastflop_moe_weights& weights,
                  void* prepared, void* stream, char* reason, size_t reason_bytes) override {
    return table_.prepare(state, &host, &weights, prepared, stream, reason, reason_bytes);
  }
  int32_t Run(void* state, const lastflop_host& host, const lastflop_moe_call& call, char* reason,
              size_t reason_bytes) override {
    return table_.run(state, &host, &call, reason, reason_bytes);
  }

 private:
  const lastflop_plugin& table_;
  const std::string title_;
};

}  // namespace lastflop
