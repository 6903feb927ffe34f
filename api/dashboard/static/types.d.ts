// Written by `python -m benchmarks.dashboard.types` from the OpenAPI; not to be edited.
declare namespace Api {
  type AnnounceIn = {
    lease: string;
    stage: "screen" | "final";
    configs: string[];
  };
  type BatchIn = {
    problems: ProblemIn[];
    device?: string | null;
    require?: "any" | "measured";
    policy?: Policy | null;
    neighbours?: "plain" | "pdl";
  };
  type BatchOut = {
    items: (BestOut | null)[];
    unanswered: number[];
  };
  type BeatIn = {
    round_id?: number | null;
    progress?: ProgressIn | null;
  };
  type BeginIn = {
    lease: string;
    provenance: ProvenanceIn;
  };
  type BestChangeOut = {
    id: number;
    policy: string;
    measurement_id: number | null;
    config_key: string | null;
    median_us: number | null;
    previous_id: number | null;
    previous_config_key: string | null;
    previous_median_us: number | null;
    reason: string;
    at: string;
  };
  type BestColumnsOut = {
    rows: number;
    total: number;
    sampled: boolean;
    device: string;
    version: number;
    changed: string[] | null;
    gain: GainsOut;
    columns: BestTableOut;
    fields: Record<string, Coded_Any_>;
    policies: Record<string, TimesOut>;
    configs: ConfigsOut;
    ceilings: CeilingsOut | null;
  };
  type BestOut = {
    problem: ProblemOut;
    device: string;
    policy: string;
    source: "measured" | "stale" | "recorded" | "nearest" | "predicted" | "none";
    why: string;
    config: ConfigOut | null;
    time_us: number | null;
    interval_us: [number, number] | null;
    tflops: number | null;
    roofline_us: number | null;
    grounds: string[];
    evidence: EvidenceOut | null;
    tune: string;
  };
  type BestTableOut = {
    time_us: (number | null)[];
    low_us: (number | null)[];
    high_us: (number | null)[];
    first: (number | null)[];
    first_low: (number | null)[];
    first_high: (number | null)[];
    first_paired: (boolean | null)[];
    best: (number | null)[];
    best_low: (number | null)[];
    best_high: (number | null)[];
    best_paired: (boolean | null)[];
    key: string[];
    m: number[];
    n: number[];
    k: number[];
    kind: Coded_str_;
    dtype: Coded_str_;
    layout: Coded_Union_str__NoneType__;
    class: Coded_str_;
    bound: Coded_Union_str__NoneType__;
    flops: number[];
    bytes: number[];
    roofline_us: (number | null)[];
    tflops: number[];
    policy: Coded_str_;
    device_kind: Coded_str_;
    config: number[];
    measurement_id: number[];
    study_id: number[];
    tried: number[];
    failed: number[];
    taken_at: number[];
    driver: Coded_str_;
    nvrtc: Coded_str_;
    kernels: Coded_str_;
    cublaslt: Coded_str_;
    stale: (boolean | null)[];
    forbidden: (boolean | null)[];
  };
  type BestsPage = {
    items: EvidenceOut[];
    next: string | null;
  };
  type Broken = {
    rule: string;
    sentence: string;
    numbers: string;
    source: string;
  };
  type BudgetIn = {
    candidates?: number;
    rounds?: number;
    target?: number | null;
    gpu_seconds?: number | null;
  };
  type BuildIn = {
    digest: string;
    problem: string;
    config: string;
    arch: string;
    nvrtc: string;
    registers: number;
    warnings: string[];
    seconds: number;
    cubin: string;
  };
  type BuildOut = {
    digest: string;
    arch: string;
    nvrtc: string;
    problem_key: string;
    config_key: string;
    registers: number;
    warnings: string[];
    seconds: number;
    cubin_sha256: string;
    offered_by: string;
    offered_at: string;
  };
  type BuildsPage = {
    items: BuildOut[];
    next: string | null;
  };
  type CallerOut = {
    name: string;
    tokens: boolean;
    scopes: Scope[];
  };
  type CampaignColumnsOut = {
    campaign_id: number;
    rows: number;
    columns: CampaignTableOut;
  };
  type CampaignIn = {
    name: string;
    problems?: CountedProblemIn[];
    ladders?: string[];
    devices: DeviceIn[];
    budget?: BudgetIn;
    priority?: number;
  };
  type CampaignOut = {
    id: number;
    name: string;
    status: "running" | "paused" | "cancelled" | "finished";
    stopped_because: string;
    priority: number;
    budget: Record<string, any>;
    created_at: string;
    finished_at: string | null;
  };
  type CampaignProblemOut = {
    id: number;
    problem: ProblemOut;
    device: string;
    device_kind: string;
    status: "waiting" | "open" | "done" | "parked" | "skipped";
    attempts: number;
    reason: string;
    failing_config: string;
    rounds: number;
    tried: number;
    failed: Record<string, number>;
    gpu_seconds: number;
    measurement_id: number | null;
    config_key: string;
    median_us: number | null;
    ended_at: string | null;
    note: string;
    count: number;
    revoked: boolean;
    tflops: number | null;
    versus_cublaslt_first: Record<string, any> | null;
    versus_cublaslt_best: Record<string, any> | null;
  };
  type CampaignProblemsPage = {
    items: CampaignProblemOut[];
    next: string | null;
  };
  type CampaignStatus = "running" | "paused" | "cancelled" | "finished";
  type CampaignTableOut = {
    id: number[];
    key: string[];
    m: (number | null)[];
    n: (number | null)[];
    k: (number | null)[];
    dtype: Coded_Union_str__NoneType__;
    layout: Coded_Union_str__NoneType__;
    device: Coded_str_;
    status: Coded_str_;
    tried: number[];
    failed: number[];
    rounds: number[];
    gpu_seconds: number[];
    median_us: (number | null)[];
    first: (number | null)[];
    first_low: (number | null)[];
    first_high: (number | null)[];
    best: (number | null)[];
    measurement_id: (number | null)[];
    attempts: number[];
    reason: Coded_str_;
    failing_config: Coded_str_;
    ended_at: (number | null)[];
    round_id: (number | null)[];
    family: Coded_Union_str__NoneType__;
    revoked: boolean[];
  };
  type CampaignsPage = {
    items: CampaignOut[];
    next: string | null;
  };
  type CeilingsOut = {
    memory_tbs: number;
    tensor_tflops: Record<string, number>;
    clock_ghz: number;
  };
  type CellsOut = {
    family: string;
    x: string;
    y: string;
    x_values: (number | string)[];
    y_values: (number | string)[];
    worth: number[][];
    state: (("worth" | "not_worth" | "illegal")[])[];
    rule: ((string | null)[])[];
    expected_us: ((number | null)[])[];
  };
  type Change = {
    knob: string;
    value: number | string;
    source: "measured" | "expected" | "illegal";
    time_us?: number | null;
    ratio?: number | null;
    low?: number | null;
    high?: number | null;
  };
  type CliffOut = {
    kind: "inversion" | "jump";
    m: number;
    time_us: number;
    witness_m: number;
    bound_us: number;
    sentence: string;
    again: ConfigOut[];
  };
  type Clocks = {
    sm_mhz: number;
    memory_mhz: number;
    power_w: number;
    temperature_c: number;
    throttle_reasons?: string[];
  };
  type ClocksIn = {
    sm_mhz: number;
    memory_mhz: number;
    power_w: number;
    temperature_c: number;
    throttle_reasons?: string[];
  };
  type Coded_Any_ = {
    values: any[];
    at: number[];
  };
  type Coded_Union_bool__NoneType__ = {
    values: (boolean | null)[];
    at: number[];
  };
  type Coded_Union_int__NoneType__ = {
    values: (number | null)[];
    at: number[];
  };
  type Coded_Union_str__NoneType__ = {
    values: (string | null)[];
    at: number[];
  };
  type Coded_int_ = {
    values: number[];
    at: number[];
  };
  type Coded_str_ = {
    values: string[];
    at: number[];
  };
  type ConfigOut = {
    family: string;
    knobs: Record<string, number | string>;
    key: string;
  };
  type ConfigsOut = {
    id: number[];
    family: Coded_str_;
    knobs: Record<string, Coded_Any_>;
  };
  type CountedProblemIn = {
    kind?: string;
    m: number;
    n: number;
    k: number;
    dtype?: string;
    layout?: string;
    batch?: number;
    epilogue?: string;
    count?: number;
  };
  type CubinOut = {
    build: BuildOut;
    cubin: string;
  };
  type DeviceIn = {
    name: string;
    kind?: "cuda" | "recorded";
  };
  type DeviceOut = {
    name: string;
    bests: number;
    kinds: Record<string, number>;
    limits: ProfileOut | null;
  };
  type DevicesOut = {
    items: DeviceOut[];
  };
  type DriftOut = {
    device: string;
    programs: ProgramOut[];
    changes: ProgramChangeOut[];
  };
  type EstimateOut = {
    problems: number;
    devices: number;
    most_candidates: number;
    untunable: Record<string, string>[];
    looked_at: number;
    gpu_seconds: number;
    gpu_seconds_low: number;
    gpu_seconds_high: number;
    seconds: number | null;
    workers: number;
    seconds_a_candidate: number;
    seconds_a_problem: number;
    rate_source: "measured" | "assumed";
  };
  type EvidenceOut = {
    problem: ProblemOut;
    config: ConfigOut;
    policy: string;
    device_kind: string;
    samples_us: number[];
    stage: string;
    note: string;
    verification: Verification | null;
    clocks: Clocks | null;
    product_joules: number | null;
    build_digest: string;
    provenance: Provenance;
    study_id: number;
    taken_at: string;
    runner_up: ConfigOut | null;
    median_us: number;
    tflops: number;
    versus_cublaslt_first: Ratio | null;
    versus_cublaslt_best: Ratio | null;
    measurement_id: number;
    tried: number;
    failed: Record<string, number>;
  };
  type ExampleOut = {
    measurement_id: number;
    problem: string;
    device: string;
    config: ConfigOut;
    detail: string;
    command: string;
    explain: string;
  };
  type ExplainIn = {
    problem: ProblemIn;
    knobs?: Record<string, number | string>;
    family?: string | null;
    device?: string | null;
    arch?: string;
  };
  type ExplanationOut = {
    config: ConfigOut;
    problem: ProblemOut;
    arch: string;
    broken: Broken[];
    not_worth: Broken[];
    nearest: ConfigOut | null;
    change: string | null;
    derived: Record<string, number>;
    legal: boolean;
    judged: boolean;
  };
  type FactsIn = {
    name: string;
    arch: string;
    kind: "cuda" | "recorded";
    uuid: string;
    driver: string;
    sm_count: number;
    l2_bytes: number;
    memory_bytes?: number;
    screening?: Policy | null;
  };
  type FailureGroupOut = {
    outcome: string;
    family: string;
    message: string;
    count: number;
    problems: number;
    configs: number;
    first_at: string;
    last_at: string;
    example: ExampleOut | null;
  };
  type FailuresOut = {
    total: number;
    read: number;
    measured: number;
    wrong_results: number;
    groups: FailureGroupOut[];
    suspects: SuspectOut[];
  };
  type FamilySpaceOut = {
    family: string;
    product: number;
    legal: number | null;
    worth: number;
    pool: number;
    removed: RemovedOut[];
    legal_removed: RemovedOut[] | null;
    knobs: KnobOut[];
  };
  type FieldError = {
    pointer: string;
    detail: string;
  };
  type FinalOut = {
    measurement_id: number;
    config: ConfigOut;
    policy: string;
    outcome: string;
    series: number;
    samples_us: number[];
    median_us: number | null;
    low_us: number | null;
    high_us: number | null;
    behind: number | null;
    surely_slower: boolean;
    tied: boolean;
    library: boolean;
    served: boolean;
    revoked: boolean;
    clocks: Clocks | null;
    product_joules: number | null;
  };
  type FinishIn = {
    lease: string;
    measurements?: MeasurementIn[];
    provenance?: ProvenanceIn | null;
    problem_key?: string;
    busy_seconds?: number;
    ended?: string;
    failure?: string;
    hopeless?: boolean;
    handed_back?: boolean;
  };
  type FleetDeviceOut = {
    device: string;
    device_kind: string;
    live: number;
    draining: number;
    busy: number;
    waiting_problems: number;
  };
  type FleetOut = {
    at: string;
    workers: Record<string, number>;
    devices: FleetDeviceOut[];
    items: WorkerFactsOut[];
  };
  type FunnelOut = {
    problem: ProblemOut;
    device: string;
    study_id: number | null;
    steps: StepOut[];
  };
  type GainsOut = {
    first: api__views__bests__GainOut | null;
    best: api__views__bests__GainOut | null;
  };
  type Health = {
    status: "ok";
  };
  type HistoryPage = {
    items: BestChangeOut[];
    next: string | null;
  };
  type ImportanceOut = {
    problem: ProblemOut;
    device: string;
    winner: ConfigOut;
    served: boolean;
    time_us: number;
    policy: Policy;
    served_us: number | null;
    served_policy: Policy | null;
    measured: number;
    importances: KnobImportance[];
    changes: Change[];
    runners_up: RunnerUpOut[];
    replay: string;
  };
  type KnobImportance = {
    knob: string;
    share: number;
    cost: number | null;
  };
  type KnobOut = {
    name: string;
    values: (number | string)[];
    default: number | string;
    decides: "compile" | "launch";
    meaning: string;
    free: boolean;
  };
  type KnobStatesOut = {
    name: string;
    value: number | string;
    default: number | string;
    decides: "compile" | "launch";
    meaning: string;
    free: boolean;
    values: ValueStateOut[];
  };
  type LadderOut = {
    rungs: RungOut[];
    cliffs: CliffOut[];
    varied: string[];
  };
  type LayoutsOut = {
    kinds: string[];
    swizzles: string[];
    patterns: Record<string, string>;
    fragments: string[];
    instruction_kinds: string[];
  };
  type MeasurementColumnsOut = {
    rows: number;
    total: number;
    sampled: boolean;
    step: number;
    version: number;
    whole: boolean;
    columns: MeasurementTableOut;
    configs: ConfigsOut;
  };
  type MeasurementIn = {
    config: string;
    stage: "screen" | "final";
    policy: Policy;
    outcome: Outcome;
    samples_us?: number[];
    detail?: string;
    verification?: VerificationIn | null;
    clocks?: ClocksIn | null;
    build_digest?: string;
    note?: string;
    product_joules?: number | null;
  };
  type MeasurementOut = {
    problem: ProblemOut;
    config: ConfigOut;
    policy: string;
    device_kind: string;
    samples_us: number[];
    stage: string;
    note: string;
    verification: Verification | null;
    clocks: Clocks | null;
    product_joules: number | null;
    build_digest: string;
    provenance: Provenance;
    study_id: number;
    taken_at: string;
    id: number;
    device: string;
    outcome: string;
    median_us: number | null;
    tflops: number | null;
    detail: string;
    worker_id: number | null;
    round_id: number | null;
    token_id: number | null;
    revoked: boolean;
  };
  type MeasurementTableOut = {
    id: number[];
    study_id: Coded_int_;
    problem: Coded_str_;
    device: Coded_str_;
    device_kind: Coded_str_;
    stage: Coded_str_;
    policy: Coded_str_;
    outcome: Coded_str_;
    config: number[];
    median_us: (number | null)[];
    series: Coded_int_;
    taken_at: number[];
    sm_mhz: Coded_Union_int__NoneType__;
    power_w: (number | null)[];
    temperature_c: Coded_Union_int__NoneType__;
    throttled: Coded_Union_bool__NoneType__;
    product_joules: (number | null)[];
    worker_id: Coded_Union_int__NoneType__;
    round_id: Coded_Union_int__NoneType__;
    revoked: boolean[];
  };
  type MeasurementsPage = {
    items: MeasurementOut[];
    next: string | null;
  };
  type MissOut = {
    problem: ProblemOut;
    device: string;
    count: number;
    first_at: string;
    last_at: string;
  };
  type MissesOut = {
    items: MissOut[];
    total: number;
  };
  type NeighboursOut = {
    config: ConfigOut;
    problem: ProblemOut;
    arch: string;
    broken: Broken[];
    not_worth: Broken[];
    nearest: ConfigOut | null;
    change: string | null;
    derived: Record<string, number>;
    legal: boolean;
    judged: boolean;
    knobs: KnobStatesOut[];
    smem: SharedMemoryOut | null;
    registers: RegistersOut | null;
    expected_us: number | null;
  };
  type OrdersOut = {
    stop: boolean;
    drain: boolean;
  };
  type Outcome = "correct" | "constraints" | "compile" | "launch" | "timeout" | "wrong_result" | "unstable";
  type PartOut = {
    name: string;
    bytes: number;
  };
  type PastOut = {
    study_id: number;
    tried: TriedOut[];
    finals_done: boolean;
    winners: string[];
  };
  type PickOut = {
    policy: string;
    measurement_id: number;
    sentence: string;
  };
  type Policy = "sustained" | "burst" | "chain" | "chain_pdl" | "rounds";
  type ProblemDocument = {
    type: string;
    title: string;
    status: number;
    detail: string;
    instance: string;
    errors?: FieldError[];
  };
  type ProblemIn = {
    kind?: string;
    m: number;
    n: number;
    k: number;
    dtype?: string;
    layout?: string;
    batch?: number;
    epilogue?: string;
  };
  type ProblemOut = {
    key: string;
    kind: string;
    dtype: string;
    m: number;
    n: number;
    k: number;
    dtype_a: string;
    dtype_b: string;
    dtype_c: string;
    dtype_acc: string;
    layout: string;
    batch: number;
    epilogue: string;
    [more: string]: any;
  };
  type ProblemStatus = "waiting" | "open" | "done" | "parked" | "skipped";
  type ProfileOut = {
    name: string;
    arch: string;
    compute_capability: [number, number];
    sm_count: number;
    smem_per_block_bytes: number;
    smem_per_sm_bytes: number;
    registers_per_sm: number;
    l2_bytes: number;
    memory_bytes: number;
    power_w: number;
    clock_ghz: number;
    highest_clock_ghz: number;
    memory_tbs: number;
    hbm_tbs: number;
    hbm_read_tbs: number;
    l2_tbs: number;
    tensor_tflops: Record<string, number>;
    tensor_flops_per_clock: number;
    launch_us: number;
    resident_clusters: Record<string, number>;
    measured: boolean;
    sources: Record<string, string>;
  };
  type ProgramChangeOut = {
    before: number;
    after: number;
    first_at: string;
    last_at: string;
    problems: number;
    geometric_mean: number;
  };
  type ProgramOut = {
    driver: string;
    nvrtc: string;
    kernels: string;
    cublaslt: string;
    first_at: string;
    last_at: string;
    bests: number;
  };
  type ProgressFactsOut = {
    stage: string;
    tried: number;
    best_us: number | null;
    at: string;
  };
  type ProgressIn = {
    stage: "screen" | "final";
    tried: number;
    best_us?: number | null;
  };
  type ProgressOut = {
    campaign: CampaignOut;
    problems: Record<string, number>;
    tried: number;
    most_candidates: number;
    failed: Record<string, number>;
    gpu_seconds: number;
    workers: number;
    rounds_running: number;
    candidates_a_second: number | null;
    seconds_left: number | null;
  };
  type Provenance = {
    device: string;
    device_uuid: string;
    driver: string;
    nvrtc: string;
    kernel_source_digest: string;
    cublaslt: string;
    gemmtune: string;
    seed: number;
    rotation_bytes?: number;
  };
  type ProvenanceIn = {
    device: string;
    device_uuid: string;
    driver: string;
    nvrtc: string;
    kernel_source_digest: string;
    cublaslt: string;
    gemmtune: string;
    seed: number;
    rotation_bytes?: number;
  };
  type Ratio = {
    value: number;
    low: number;
    high: number;
    paired: boolean;
  };
  type Readiness = {
    status: "ready";
    bests: number;
    left_out: number;
    snapshot_age_seconds: number;
  };
  type RegistersOut = {
    limit: number;
    used: number;
    per_thread: number;
    held: number;
    most_per_thread: number;
  };
  type RemovedOut = {
    rule: string;
    kind: "legal" | "worth";
    sentence: string;
    source: string;
    count: number;
  };
  type RevocationOut = {
    id: number;
    worker: string;
    token: string;
    since: string | null;
    reason: string;
    made_by: string;
    at: string;
    measurements: number;
    bests: number;
  };
  type RevokeIn = {
    worker?: string;
    token?: string;
    since?: string | null;
    reason?: string;
  };
  type RollbackIn = {
    problem: ProblemIn;
    device: string;
    change: number;
  };
  type RoundOut = {
    id: number;
    campaign_id: number;
    campaign_problem_id: number;
    problem: string;
    worker_id: number | null;
    study_id: number | null;
    status: "queued" | "running" | "done" | "failed" | "lost" | "withdrawn";
    created_at: string;
    claimed_at: string | null;
    ended_at: string | null;
    busy_seconds: number;
    measured: number;
    reason: string;
    announced_stage: string;
    announced: number;
    progress: ProgressFactsOut | null;
  };
  type RoundsPage = {
    items: RoundOut[];
    next: string | null;
  };
  type RuleOut = {
    id: string;
    family: string;
    kind: "legal" | "worth";
    sentence: string;
    source: string;
    reads: string[];
  };
  type RulesOut = {
    items: RuleOut[];
  };
  type RungOut = {
    m: number;
    problem: string;
    source: "measured" | "stale" | "recorded" | "nearest" | "predicted" | "none";
    time_us: number | null;
    interval_us: [number, number] | null;
    tflops: number | null;
    roofline_us: number | null;
    config: ConfigOut | null;
    why: string;
    replayed: boolean;
  };
  type RunnerUpOut = {
    config: ConfigOut;
    time_us: number;
    ratio: number;
  };
  type Scope = "read" | "submit" | "work" | "admin";
  type ServiceOut = {
    version: string;
    demo: boolean;
    store: "sqlite" | "postgresql";
    bests: number;
    devices: string[];
    changes: Record<string, number>;
    snapshot_age_seconds: number;
  };
  type SharedMemoryOut = {
    limit_bytes: number;
    used_bytes: number;
    parts: PartOut[];
  };
  type SpaceOut = {
    problem: ProblemOut;
    device: string;
    arch: string;
    families: FamilySpaceOut[];
    cells: CellsOut | null;
  };
  type StepOut = {
    name: "product" | "legal" | "worth" | "pool" | "measured" | "correct" | "finals" | "served";
    count: number | null;
  };
  type StudiesPage = {
    items: StudyOut[];
    next: string | null;
  };
  type StudyInFullOut = {
    study: StudyOut;
    finals: FinalOut[];
    picks: PickOut[];
    tie_bands: Record<string, number>;
    step: number;
    provenance: Provenance | null;
  };
  type StudyOut = {
    id: number;
    problem: ProblemOut;
    device: string;
    device_kind: string;
    policy: string;
    family: string;
    source: string;
    generation: number;
    status: "running" | "finished";
    stopped_because: string;
    created_at: string;
    measured: number;
    correct: number;
    failed: Record<string, number>;
    finalists: number;
    best_us: number | null;
  };
  type StudyOutlookOut = {
    study_id: number;
    tried: number;
    pool: number;
    chance: number | null;
    gain: number | null;
    margin: number;
  };
  type SummaryOut = {
    progress: ProgressOut;
    gain: api__fleet_schemas__GainOut | null;
    failed: Record<string, number>;
    parked: Record<string, number>;
    library_won: number;
    replayed: number;
    won: WonOut | null;
    revoked: number;
  };
  type SuspectOut = {
    campaign_id: number;
    problem: string;
    device: string;
    config: string;
    reason: string;
  };
  type TableOut = {
    content: string;
    device: string;
    entries: EvidenceOut[];
    schema: string;
  };
  type TaskOut = {
    round_id: number;
    lease: string;
    problem_key: string;
    candidates: number;
    rounds: number;
    target: number | null;
    seconds: number;
    only: string[];
    finalists: number;
    slot: string;
  };
  type TimesOut = {
    time_us: (number | null)[];
    low_us: (number | null)[];
    high_us: (number | null)[];
    first: (number | null)[];
    first_low: (number | null)[];
    first_high: (number | null)[];
    first_paired: (boolean | null)[];
    best: (number | null)[];
    best_low: (number | null)[];
    best_high: (number | null)[];
    best_paired: (boolean | null)[];
  };
  type TriedOut = {
    config: string;
    outcome: string;
    median_us: number | null;
    noise: number;
  };
  type ValueStateOut = {
    value: number | string;
    state: "legal" | "not_worth" | "illegal";
    rules: string[];
    current: boolean;
  };
  type Verification = {
    elements: number;
    mismatches: number;
    worst_ratio: number;
    reference: string;
  };
  type VerificationIn = {
    elements: number;
    mismatches: number;
    worst_ratio: number | null;
    reference: string;
  };
  type WeightOut = {
    n: number;
    k: number;
    kind: string;
    dtype: string;
    layout: string | null;
    ms: number[];
    example: Record<string, number | string>;
  };
  type WeightsOut = {
    items: WeightOut[];
  };
  type WelcomeOut = {
    worker_id: number;
    heartbeat_seconds: number;
    progress: boolean;
  };
  type WonOut = {
    share: number;
    library_us: number;
    ours_us: number;
    problems: number;
  };
  type WorkerFactsOut = {
    worker: WorkerOut;
    round: RoundOut | null;
    last_clocks: Clocks | null;
    busy_share: number;
  };
  type WorkerIn = {
    name: string;
    facts: FactsIn;
  };
  type WorkerOut = {
    id: number;
    name: string;
    queue: string;
    device: string;
    device_kind: string;
    device_uuid: string;
    driver: string;
    status: "live" | "draining" | "gone";
    gone_because: string;
    registered_at: string;
    beat_at: string;
    rounds: number;
    busy_seconds: number;
    round_id: number | null;
  };
  type WorkersPage = {
    items: WorkerOut[];
    next: string | null;
  };
  type api__fleet_schemas__GainOut = {
    problems: number;
    geometric_mean: number;
    faster: number;
    tied: number;
    slower: number;
    least: number;
    most: number;
  };
  type api__views__bests__GainOut = {
    problems: number;
    geometric_mean: number;
    low: number;
    high: number;
    faster: number;
    tied: number;
    slower: number;
    least: number;
    most: number;
  };
  type Got<P extends string> =
    P extends "/v1/best/history" ? HistoryPage :
    P extends "/v1/layouts/banks" ? Record<string, any> :
    P extends "/v1/layouts/boxes" ? Record<string, any> :
    P extends "/v1/layouts/descriptor" ? Record<string, any> :
    P extends "/v1/layouts/fragment" ? Record<string, any> :
    P extends "/v1/layouts/instruction" ? Record<string, any> :
    P extends "/v1/layouts/scales" ? Record<string, any> :
    P extends "/v1/layouts/swizzle" ? Record<string, any> :
    P extends "/v1/best" ? BestOut :
    P extends "/v1/bests" ? BestsPage :
    P extends "/v1/bests:columns" ? BestColumnsOut :
    P extends "/v1/builds" ? BuildsPage :
    P extends "/v1/caller" ? CallerOut :
    P extends "/v1/campaigns" ? CampaignsPage :
    P extends "/v1/devices" ? DevicesOut :
    P extends "/v1/failures" ? FailuresOut :
    P extends "/v1/fleet" ? FleetOut :
    P extends "/v1/funnel" ? FunnelOut :
    P extends "/v1/importance" ? ImportanceOut :
    P extends "/v1/ladder" ? LadderOut :
    P extends "/v1/layouts" ? LayoutsOut :
    P extends "/v1/measurements" ? MeasurementsPage :
    P extends "/v1/measurements:columns" ? MeasurementColumnsOut :
    P extends "/v1/misses" ? MissesOut :
    P extends "/v1/rounds" ? RoundsPage :
    P extends "/v1/rules" ? RulesOut :
    P extends "/v1/service" ? ServiceOut :
    P extends "/v1/space" ? SpaceOut :
    P extends "/v1/studies" ? StudiesPage :
    P extends "/v1/weights" ? WeightsOut :
    P extends "/v1/workers" ? WorkersPage :
    P extends "/healthz" ? Health :
    P extends "/readyz" ? Readiness :
    P extends `/v1/measurements/${string}/versus/${string}` ? Ratio :
    P extends `/v1/builds/${string}/cubin` ? CubinOut :
    P extends `/v1/campaigns/${string}/problems` ? CampaignProblemsPage :
    P extends `/v1/campaigns/${string}/problems:columns` ? CampaignColumnsOut :
    P extends `/v1/campaigns/${string}/summary` ? SummaryOut :
    P extends `/v1/devices/${string}/drift` ? DriftOut :
    P extends `/v1/studies/${string}/outlook` ? StudyOutlookOut :
    P extends `/v1/builds/${string}` ? BuildOut :
    P extends `/v1/campaigns/${string}` ? ProgressOut :
    P extends `/v1/devices/${string}` ? DeviceOut :
    P extends `/v1/measurements/${string}` ? MeasurementOut :
    P extends `/v1/rules/${string}` ? RuleOut :
    P extends `/v1/studies/${string}` ? StudyInFullOut :
    P extends `/v1/tables/${string}` ? TableOut :
    any;
  type Posted<P extends string> =
    P extends "/v1/best:batch" ? BatchOut :
    P extends "/v1/best:rollback" ? BestChangeOut :
    P extends "/v1/builds" ? BuildOut :
    P extends "/v1/campaigns" ? CampaignOut :
    P extends "/v1/campaigns:estimate" ? EstimateOut :
    P extends "/v1/explain" ? ExplanationOut :
    P extends "/v1/explain:neighbours" ? NeighboursOut :
    P extends "/v1/workers" ? WelcomeOut :
    P extends "/v1/workers:revoke" ? RevocationOut :
    P extends `/v1/campaigns/${string}:cancel` ? CampaignOut :
    P extends `/v1/campaigns/${string}:pause` ? CampaignOut :
    P extends `/v1/campaigns/${string}:resume` ? CampaignOut :
    P extends `/v1/rounds/${string}:begin` ? PastOut :
    P extends `/v1/workers/${string}:claim` ? TaskOut :
    P extends `/v1/workers/${string}:drain` ? WorkerOut :
    P extends `/v1/workers/${string}:heartbeat` ? OrdersOut :
    any;
}
