// libtensoropt_cudnn.so on host memory: attention with a matrix of scores, in double. Results that
// cuDNN leaves out, those of keys that are not read, are not written. The workspace is overwritten.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "cudnn/interface.hpp"
#include "half.hpp"
#include "log.hpp"

#define EXPORT __attribute__((visibility("default")))

namespace tensoropt::cudnn {

struct Plan {
  Form form;
  std::size_t workspace_bytes;
};

namespace {

constexpr std::int64_t kBFloat16 = 16;  // ONNX's number

class Array {
 public:
  Array(void* data, std::int64_t type) : data_(static_cast<std::uint16_t*>(data)), type_(type) {}

  double at(std::int64_t index) const {
    const auto bits = data_[index];
    return type_ == kBFloat16 ? BFloat16{bits}.widen() : Float16{bits}.widen();
  }

  void set(std::int64_t index, double value) const {
    const auto number = float(value);
    data_[index] = type_ == kBFloat16 ? BFloat16::round(number).bits : Float16::round(number).bits;
  }

 private:
  std::uint16_t* data_;
  std::int64_t type_;
};

// A row of the matrix of scores: that of one query of one head.
struct Row {
  std::int64_t batch, head, query;
};

class Run {
 public:
  Run(const Form& form, void* const* tensors) : f_(form), tensors_(tensors) {}

  void attend() const {
    each_row([&](const Row& row) {
      const auto scores = scores_of(row);
      const double most = *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (const double score : scores) sum += std::exp(score - most);
      const double lse = most + std::log(sum);
      if (f_.lse) floats(Lse)[query(row)] = float(lse);
      for (std::int64_t e = 0; e < f_.value_size; ++e) {
        double total = 0;
        for (std::int64_t j = 0; j < f_.keys; ++j)
          total += std::exp(scores[std::size_t(j)] - lse) * of(V).at(value(row, j) + e);
        of(Y).set(query(row) * f_.value_size + e, total);
      }
    });
  }

  void differentiate() {
    dk_.resize(std::size_t(f_.batch * f_.key_heads * f_.key_rows * f_.size));
    dv_.resize(std::size_t(f_.batch * f_.key_heads * f_.key_rows * f_.value_size));
    dbias_.resize(std::size_t(f_.bias_batch * f_.bias_heads * f_.bias_queries * f_.key_rows));
    each_row([&](const Row& row) { differentiate(row); });
    for (std::int64_t b = 0; b < f_.batch; ++b)
      for (std::int64_t head = 0; head < f_.key_heads; ++head)
        for (std::int64_t j = 0; j < keys_of(b); ++j) {
          const auto key = (b * f_.key_heads + head) * f_.key_rows + j;
          write(DK, dk_, key * f_.size, f_.size);
          write(DV, dv_, key * f_.value_size, f_.value_size);
        }
    const auto rows = f_.dbias ? f_.bias_batch * f_.bias_heads * f_.bias_queries : 0;
    for (std::int64_t row = 0; row < rows; ++row) write(DBias, dbias_, row * f_.key_rows, f_.keys);
  }

 private:
  template <class Body>
  void each_row(const Body& body) const {
    for (std::int64_t b = 0; b < f_.batch; ++b)
      for (std::int64_t head = 0; head < f_.heads; ++head)
        for (std::int64_t i = 0; i < f_.queries; ++i) body(Row{b, head, i});
  }

  void differentiate(const Row& row) {
    const auto scores = scores_of(row);
    double dot = 0;
    for (std::int64_t e = 0; e < f_.value_size; ++e) dot += dy(row, e) * of(Y).at(result(row) + e);
    std::vector<double> dq(std::size_t(f_.size));
    for (std::int64_t j = 0; j < f_.keys; ++j) {
      const double weight = std::exp(scores[std::size_t(j)] - double(floats(Lse)[query(row)]));
      if (weight == 0) continue;
      double dweight = 0;
      for (std::int64_t e = 0; e < f_.value_size; ++e) {
        dweight += dy(row, e) * of(V).at(value(row, j) + e);
        dv_[std::size_t(value(row, j) + e)] += weight * dy(row, e);
      }
      double dscore = weight * (dweight - dot);
      if (f_.dbias) dbias_[std::size_t(bias(row) + j)] += dscore;
      if (f_.cap != 0) dscore *= 1 - std::pow(std::tanh(product(row, j) / double(f_.cap)), 2);
      for (std::int64_t d = 0; d < f_.size; ++d) {
        dq[std::size_t(d)] += dscore * double(f_.scale) * of(K).at(key(row, j) + d);
        dk_[std::size_t(key(row, j) + d)] +=
            dscore * double(f_.scale) * of(Q).at(query(row) * f_.size + d);
      }
    }
    for (std::int64_t d = 0; d < f_.size; ++d)
      of(DQ).set(query(row) * f_.size + d, dq[std::size_t(d)]);
  }

  std::vector<double> scores_of(const Row& row) const {
    std::vector<double> scores(std::size_t(f_.keys), -std::numeric_limits<double>::infinity());
    for (std::int64_t j = 0; j < f_.keys; ++j) {
      if (!reads(row, j)) continue;
      double score = product(row, j);
      if (f_.cap != 0) score = double(f_.cap) * std::tanh(score / double(f_.cap));
      scores[std::size_t(j)] = score + (f_.bias_batch ? of(Bias).at(bias(row) + j) : 0);
    }
    return scores;
  }

  double product(const Row& row, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t d = 0; d < f_.size; ++d)
      sum += of(Q).at(query(row) * f_.size + d) * of(K).at(key(row, j) + d);
    return sum * double(f_.scale);
  }

  bool reads(const Row& row, std::int64_t j) const {
    const auto place = row.query + (f_.band == Band::ToLast ? f_.keys - f_.queries : 0);
    if (f_.band != Band::All && j > place) return false;
    if (f_.window && j <= place - f_.window) return false;
    return j < keys_of(row.batch);
  }

  std::int64_t keys_of(std::int64_t batch) const {
    return f_.lengths ? static_cast<const std::int32_t*>(tensors_[KeyLengths])[batch] : f_.keys;
  }

  void write(Tensor tensor, const std::vector<double>& from, std::int64_t first,
             std::int64_t count) const {
    for (auto at = first; at < first + count; ++at) of(tensor).set(at, from[std::size_t(at)]);
  }

  Array of(Tensor tensor) const { return {tensors_[tensor], f_.type}; }
  float* floats(Tensor tensor) const { return static_cast<float*>(tensors_[tensor]); }
  double dy(const Row& row, std::int64_t e) const { return of(DY).at(result(row) + e); }

  // Places in arrays.
  std::int64_t query(const Row& row) const {
    return (row.batch * f_.heads + row.head) * f_.queries + row.query;
  }
  std::int64_t result(const Row& row) const { return query(row) * f_.value_size; }
  std::int64_t key_row(const Row& row, std::int64_t j) const {
    const auto head = row.head / (f_.heads / f_.key_heads);
    return (row.batch * f_.key_heads + head) * f_.key_rows + j;
  }
  std::int64_t key(const Row& row, std::int64_t j) const { return key_row(row, j) * f_.size; }
  std::int64_t value(const Row& row, std::int64_t j) const {
    return key_row(row, j) * f_.value_size;
  }
  std::int64_t bias(const Row& row) const {
    const auto at = [](std::int64_t index, std::int64_t size) { return size == 1 ? 0 : index; };
    const auto head = at(row.batch, f_.bias_batch) * f_.bias_heads + at(row.head, f_.bias_heads);
    return (head * f_.bias_queries + at(row.query, f_.bias_queries)) * f_.key_rows;
  }

  const Form& f_;
  void* const* tensors_;
  std::vector<double> dk_, dv_, dbias_;
};

}  // namespace
}  // namespace tensoropt::cudnn

using namespace tensoropt::cudnn;

EXPORT const char* tensoropt_cudnn_plan(const Form* form, const char*, Plan** plan,
                                        std::size_t* workspace_bytes) {
  if (form->size > 256) return "a head is too large";
  *workspace_bytes = std::size_t(4 * form->batch * form->heads * form->queries);
  *plan = new Plan{*form, *workspace_bytes};
  stand_in::Line("attentionPlan").add("gradient", form->gradient).add("keys", form->keys);
  return nullptr;
}

EXPORT const char* tensoropt_cudnn_run(Plan* plan, void* stream, void* const* tensors,
                                       void* workspace) {
  const auto& form = plan->form;
  stand_in::Line("attention")
      .add("gradient", form.gradient)
      .add("stream", stand_in::number(stream))
      .add("workspace", plan->workspace_bytes);
  if (!workspace) return "no workspace";
  Run run(form, tensors);
  if (form.gradient) run.differentiate();
  else run.attend();
  std::memset(workspace, 0xff, plan->workspace_bytes);
  return nullptr;
}
