// The meeting point of a job's ranks: a thread of rank 0. Every rank keeps one connection to it for
// its lifetime, and a second one for MPICH's PMI-1.
//
// The protocol is lines of text both ways. On each connection both sides first prove that they have
// the job's secret (identity.hpp), the rank before the hub:
//   tensoropt 3 ROLE RANK SIZE MACHINE JOB TOKEN NONCE     ROLE: control or pmi
//                     answered by: challenge NONCE
//   proof PROOF       answered by: accepted PROOF TOKEN, or denied PROOF WHY
// Without proof of the rank, the hub only answers: refused WHAT (line, version or secret), which
// any process could send. TOKEN identifies the rank's control connection, on which it is "-". On
// the other connection PMI-1 follows. When all ranks are connected the hub stops listening and
// sends `ready JOB` to each; JOB is the job's name for MPICH. From then on:
//   bye              the rank ends normally        end WHY        end now, the job has failed
//   fail WHY         it ends because of an error   where          request for the activity
//   left STATUS      its exit status               over           rank 0 has ended normally
//   at WHAT          its activity                  at RANK WHAT   to rank 0: a rank's activity
//   ask              from rank 0: request for all
//   here             it is alive                   call           liveness probe
// A rank may fail because another rank was killed, and the hub may notice the lost connection
// later. So before the hub accepts a failure, it probes the other ranks; a rank that is lost during
// the probe is reported as the cause. Nothing is encrypted, and later lines have no proofs
// (docs/decisions/0031).
#pragma once

#include <list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "start/identity.hpp"
#include "start/pmi_server.hpp"
#include "start/sockets.hpp"

namespace tensoropt {

class Hub {
 public:
  struct Wanted {
    int size;
    bool with_pmi;  // ranks have a second connection
    double timeout_s;
    Identity identity;
    std::string name{};  // the job's name for MPICH; generated if empty
  };

  // Waits for ranks; `listener` may be empty.
  Hub(Socket listener, const Wanted& wanted);

  // Takes over a connection of this process; to be called before `run`.
  void adopt(Socket socket);

  // Serves until rank 0 has ended normally, or the job has failed and every rank is informed.
  void run();

 private:
  enum class Role { Unknown, Control, Pmi };
  struct Hello {
    Role role = Role::Unknown;
    int rank = -1, size = 0;
    std::string machine{}, job{}, token{};
  };
  struct Guest {
    Socket socket;
    Moment since;               // time of connection
    Role role = Role::Unknown;  // role and rank are unknown until proved
    int rank = -1;
    Talk talk{};
    std::string in{}, out{};
    bool is_due = true;                         // readable, or writable with pending output
    bool said_bye = false, is_leaving = false;  // leaving: closed once `out` is sent
  };

  void wait();
  void accept_all();
  void serve(Guest& guest);
  void take(Guest& guest, const std::string& line);
  void greet(Guest& guest, const std::string& line);
  void check_proof(Guest& guest, const std::string& line);
  std::string why_not(const Hello& hello);
  enum class Refusal { None, Line, Version, Secret, Denied };  // from least to most informative
  void refuse(Guest& guest, Refusal what);
  void deny(Guest& guest, const std::string& why);
  void answer(Guest& guest, const std::string& verb, const std::string& rest);
  void remember(Refusal what, const std::string& why);
  void admit(Guest& guest, const Hello& hello);
  void start_if_complete();
  void take_control(Guest& guest, const std::string& line);
  void take_pmi(Guest& guest, const std::string& line);
  void lost(Guest& guest);
  void accuse(int rank, const std::string& why);
  void answered(int rank);
  void sweep();
  void believe();
  void let_go_of_strangers(Moment since);
  Clock::duration patience() const;
  bool is_crowded() const;
  void check_time();
  Moment next_look() const;
  void end(const std::string& why);
  void send_to_all(const std::string& line, int except);
  void flush(Moment until);
  bool is_over() const;
  std::string name(int rank) const;
  std::string missing() const;
  Guest* guest_of(Role role, int rank);

  struct Verdict {  // the reported cause of failure, while other ranks are probed
    int rank;
    std::string why;
    Moment until;
    std::set<int> silent;
  };

  Socket listener_;
  Wanted wanted_;
  std::size_t size_;
  Moment until_;
  std::list<Guest> guests_{};
  std::vector<std::string> tokens_, machines_;
  Refusal refusal_ = Refusal::None;
  std::string why_refused_{};
  std::string name_;  // the job's name for MPICH
  PmiServer pmi_;
  std::optional<Verdict> verdict_{};
  bool is_ready_ = false, has_ended_ = false, is_leaving_ = false;
};

// Runs the hub of this process in a separate thread.
void run_aside(Hub* hub);

// At process exit: waits until the hub has informed the other ranks that the job is over, but not
// for long. Otherwise they would take this process's end for the failure of a rank.
void wait_for_hub();

}  // namespace tensoropt
