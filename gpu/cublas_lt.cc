#include "gpu/cublas_lt.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "gpu/shared_library.h"

namespace lastflop {
namespace {

// cuBLAS documentation, "Workspace": 32 MiB is what Hopper's kernels ask for.
constexpr size_t kWorkspaceBytes = size_t{32} << 20;

absl::Status LtStatus(cublasStatus_t status, absl::string_view doing) {
  if (status == CUBLAS_STATUS_SUCCESS) {
    return absl::OkStatus();
  }
  const std::string message = absl::StrCat(doing, ": cuBLASLt status ", static_cast<int>(status));
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? absl::UnimplementedError(message)
                                               : absl::InternalError(message);
}

}  // namespace

struct CublasLt::Api {
  decltype(cublasLtCreate)* create = nullptr;
  decltype(cublasLtDestroy)* destroy = nullptr;
  decltype(cublasLtGetVersion)* get_version = nullptr;
  decltype(cublasLtMatmul)* matmul = nullptr;
  decltype(cublasLtMatmulDescCreate)* desc_create = nullptr;
  decltype(cublasLtMatmulDescDestroy)* desc_destroy = nullptr;
  decltype(cublasLtMatmulDescSetAttribute)* desc_set = nullptr;
  decltype(cublasLtMatrixLayoutCreate)* layout_create = nullptr;
  decltype(cublasLtMatrixLayoutDestroy)* layout_destroy = nullptr;
  decltype(cublasLtMatrixLayoutSetAttribute)* layout_set = nullptr;
  decltype(cublasLtMatmulPreferenceCreate)* preference_create = nullptr;
  decltype(cublasLtMatmulPreferenceDestroy)* preference_destroy = nullptr;
  decltype(cublasLtMatmulPreferenceSetAttribute)* preference_set = nullptr;
  decltype(cublasLtMatmulAlgoGetHeuristic)* get_heuristic = nullptr;

  absl::Status LoadFrom(const SharedLibrary& library) {
    LASTFLOP_RETURN_IF_ERROR(library.Load("cublasLtCreate", create));
    LASTFLOP_RETURN_IF_ERROR(library.Load("cublasLtDestroy", destroy));
    LASTFLOP_RETURN_IF_ERROR(library.Load("cublasLtGetVersion", get_version));
    LASTFLOP_RETURN_IF_ERROR(library.Load("cublasLtMatmul", matmul));
    LASTFLOP_RETURN_IF_ERROR(library.Load("cublasLtMatmulDescCreate", desc_create));
    LASTFLOP_RETURN_IF_ERROR(library.Load("cublasLtMatmulDescDestroy", desc_destroy));
    LASTFLOP_RETURN_IF_ERROR(library.Load("cublasLtMatmulDescSetAttribute", desc_set));
    LASTFLOP_RETURN_IF_ERROR(library.Load("cublasLtMatrixLayoutCreate", layout_create));
    LASTFLOP_RETURN_IF_ERROR(library.Load("cublasLtMatrixLayoutDestroy", layout_destroy));
    LASTFLOP_RETURN_IF_ERROR(library.Load("cublasLtMatrixLayoutSetAttribute", layout_set));
    LASTFLOP_RETURN_IF_ERROR(library.Load("cublasLtMatmulPreferenceCreate", preference_create));
    LASTFLOP_RETURN_IF_ERROR(library.Load("cublasLtMatmulPreferenceDestroy", preference_destroy));
    LASTFLOP_RETURN_IF_ERROR(library.Load("cublasLtMatmulPreferenceSetAttribute", preference_set));
    return library.Load("cublasLtMatmulAlgoGetHeuristic", get_heuristic);
  }
};

// Column-major, as cuBLASLt sees it: out^T [n, t] = weight^T^T [n, k] * in^T [k, t].
struct CublasLt::Plan {
  explicit Plan(const Api& of) : api(of) {}
  ~Plan() {
    for (cublasLtMatrixLayout_t layout : {weight, in, out}) {
      if (layout != nullptr) {
        api.layout_destroy(layout);
      }
    }
    if (desc != nullptr) {
      api.desc_destroy(desc);
    }
  }

  absl::Status Layout(cublasLtMatrixLayout_t& layout, cudaDataType type, int64_t rows, int64_t cols,
                      int64_t stride, int64_t batch, int64_t batch_stride) {
    LASTFLOP_RETURN_IF_ERROR(LtStatus(api.layout_create(&layout, type, static_cast<uint64_t>(rows),
                                                        static_cast<uint64_t>(cols), stride),
                                      "a matrix layout"));
    if (batch > 1) {
      const auto count = static_cast<int32_t>(batch);
      LASTFLOP_RETURN_IF_ERROR(LtStatus(
          api.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
          "a batch count"));
      return LtStatus(api.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                     &batch_stride, sizeof(batch_stride)),
                      "a batch stride");
    }
    return absl::OkStatus();
  }

  const Api& api;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t weight = nullptr;
  cublasLtMatrixLayout_t in = nullptr;
  cublasLtMatrixLayout_t out = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

CublasLt::CublasLt(std::unique_ptr<Api> api, std::string path)
    : api_(std::move(api)), path_(std::move(path)) {}

CublasLt::~CublasLt() {
  plans_.clear();
  if (handle_ != nullptr) {
    api_->destroy(handle_);
  }
}

absl::StatusOr<std::unique_ptr<CublasLt>> CublasLt::Create() {
  LASTFLOP_ASSIGN_OR_RETURN(const SharedLibrary library,
                            SharedLibrary::Open("CUBLASLT", {"libcublasLt.so.13"}));
  auto api = std::make_unique<Api>();
  LASTFLOP_RETURN_IF_ERROR(api->LoadFrom(library));
  std::unique_ptr<CublasLt> made(new CublasLt(std::move(api), library.path()));
  made->version_ = made->api_->get_version();
  LASTFLOP_RETURN_IF_ERROR(LtStatus(made->api_->create(&made->handle_), "starting cuBLASLt"));
  LASTFLOP_ASSIGN_OR_RETURN(made->workspace_, DeviceBuffer::Create(kWorkspaceBytes));
  return made;
}

absl::Status CublasLt::Prepare(const DenseGemm& gemm) {
  if (plans_.count(gemm) > 0) {
    return absl::OkStatus();
  }
  auto plan = std::make_unique<Plan>(*api_);
  LASTFLOP_RETURN_IF_ERROR(
      LtStatus(api_->desc_create(&plan->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product"));
  const cublasOperation_t transposed = CUBLAS_OP_T;
  LASTFLOP_RETURN_IF_ERROR(LtStatus(
      api_->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
      "a transposition"));
  if (gemm.bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const cudaDataType type = CUDA_R_16BF;
    LASTFLOP_RETURN_IF_ERROR(LtStatus(
        api_->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)),
        "an epilogue"));
    LASTFLOP_RETURN_IF_ERROR(LtStatus(
        api_->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof(type)),
        "a bias"));
  }
  LASTFLOP_RETURN_IF_ERROR(plan->Layout(plan->weight, CUDA_R_16BF, gemm.in_features,
                                        gemm.out_features, gemm.in_features, gemm.batch,
                                        gemm.weight_batch_stride));
  LASTFLOP_RETURN_IF_ERROR(plan->Layout(plan->in, CUDA_R_16BF, gemm.in_features, gemm.num_tokens,
                                        gemm.in_stride, gemm.batch, gemm.in_batch_stride));
  LASTFLOP_RETURN_IF_ERROR(plan->Layout(plan->out, gemm.fp32_out ? CUDA_R_32F : CUDA_R_16BF,
                                        gemm.out_features, gemm.num_tokens, gemm.out_stride,
                                        gemm.batch, gemm.out_batch_stride));
  cublasLtMatmulPreference_t preference = nullptr;
  LASTFLOP_RETURN_IF_ERROR(LtStatus(api_->preference_create(&preference), "a preference"));
  absl::Status status =
      LtStatus(api_->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                    &kWorkspaceBytes, sizeof(kWorkspaceBytes)),
               "a workspace limit");
  cublasLtMatmulHeuristicResult_t result{};
  int count = 0;
  if (status.ok()) {
    status =
        LtStatus(api_->get_heuristic(handle_, plan->desc, plan->weight, plan->in, plan->out,
                                     plan->out, preference, 1, &result, &count),
                 absl::StrCat("choosing a product of [", gemm.num_tokens, ", ", gemm.in_features,
                              "] and [", gemm.out_features, ", ", gemm.in_features, "]"));
  }
  api_->preference_destroy(preference);
  LASTFLOP_RETURN_IF_ERROR(status);
  if (count == 0) {
    return absl::UnimplementedError("cuBLASLt has no algorithm for a product");
  }
  plan->algorithm = result.algo;
  plans_.emplace(gemm, std::move(plan));
  return absl::OkStatus();
}

absl::Status CublasLt::Run(const DenseGemm& gemm, const void* in, const void* weight,
                           const void* bias, void* out, cudaStream_t stream) {
  const auto found = plans_.find(gemm);
  if (found == plans_.end()) {
    return absl::InternalError("a product that was not prepared");
  }
  const Plan& plan = *found->second;
  if (gemm.bias) {
    LASTFLOP_RETURN_IF_ERROR(
        LtStatus(api_->desc_set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)),
                 "a bias pointer"));
  }
  const float one = 1;
  const float zero = 0;
  return LtStatus(
      api_->matmul(handle_, plan.desc, &one, weight, plan.weight, in, plan.in, &zero, out, plan.out,
                   out, plan.out, &plan.algorithm, workspace_.data(), kWorkspaceBytes, stream),
      "launching a cuBLASLt product");
}

}  // namespace lastflop
