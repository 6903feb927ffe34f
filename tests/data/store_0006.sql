PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE gemmtune_alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT gemmtune_alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO gemmtune_alembic_version VALUES('0006');
CREATE TABLE config (
	id INTEGER NOT NULL, 
	"key" VARCHAR(500) NOT NULL, 
	family VARCHAR(40) NOT NULL, 
	knobs JSON NOT NULL, 
	CONSTRAINT pk_config PRIMARY KEY (id), 
	CONSTRAINT uq_config_key UNIQUE ("key")
);
INSERT INTO config VALUES(1,'sm90_wgmma:swap_ab=0,tile_m=128,schedule=cooperative,consumer_warpgroups=2,tile_n=256,instructions_n=1,tile_k=64,swizzle_a=128,swizzle_b=128,a_source=smem,producer_registers=40,cluster_m=1,cluster_n=1,cluster_k=1,split_k=1,epilogue=tma,stream_k=0,stages=3,raster=along_m,raster_group=4,cache_hint=none,l2_promotion=128,pdl=0,prefetch_stages=0','sm90_wgmma','{"swap_ab": 0, "tile_m": 128, "schedule": "cooperative", "consumer_warpgroups": 2, "tile_n": 256, "instructions_n": 1, "tile_k": 64, "swizzle_a": 128, "swizzle_b": 128, "a_source": "smem", "producer_registers": 40, "cluster_m": 1, "cluster_n": 1, "cluster_k": 1, "split_k": 1, "epilogue": "tma", "stream_k": 0, "stages": 3, "raster": "along_m", "raster_group": 4, "cache_hint": "none", "l2_promotion": 128, "pdl": 0, "prefetch_stages": 0}');
INSERT INTO config VALUES(2,'sm90_wgmma:swap_ab=0,tile_m=128,schedule=pingpong,consumer_warpgroups=2,tile_n=128,instructions_n=1,tile_k=64,swizzle_a=128,swizzle_b=128,a_source=smem,producer_registers=40,cluster_m=2,cluster_n=1,cluster_k=1,split_k=1,epilogue=direct,stream_k=0,stages=7,raster=along_m,raster_group=4,cache_hint=none,l2_promotion=128,pdl=0,prefetch_stages=0','sm90_wgmma','{"swap_ab": 0, "tile_m": 128, "schedule": "pingpong", "consumer_warpgroups": 2, "tile_n": 128, "instructions_n": 1, "tile_k": 64, "swizzle_a": 128, "swizzle_b": 128, "a_source": "smem", "producer_registers": 40, "cluster_m": 2, "cluster_n": 1, "cluster_k": 1, "split_k": 1, "epilogue": "direct", "stream_k": 0, "stages": 7, "raster": "along_m", "raster_group": 4, "cache_hint": "none", "l2_promotion": 128, "pdl": 0, "prefetch_stages": 0}');
INSERT INTO config VALUES(3,'sm90_wgmma:swap_ab=0,tile_m=128,schedule=pingpong,consumer_warpgroups=2,tile_n=128,instructions_n=1,tile_k=64,swizzle_a=128,swizzle_b=128,a_source=smem,producer_registers=40,cluster_m=1,cluster_n=2,cluster_k=1,split_k=1,epilogue=direct,stream_k=0,stages=7,raster=along_n,raster_group=16,cache_hint=none,l2_promotion=128,pdl=0,prefetch_stages=0','sm90_wgmma','{"swap_ab": 0, "tile_m": 128, "schedule": "pingpong", "consumer_warpgroups": 2, "tile_n": 128, "instructions_n": 1, "tile_k": 64, "swizzle_a": 128, "swizzle_b": 128, "a_source": "smem", "producer_registers": 40, "cluster_m": 1, "cluster_n": 2, "cluster_k": 1, "split_k": 1, "epilogue": "direct", "stream_k": 0, "stages": 7, "raster": "along_n", "raster_group": 16, "cache_hint": "none", "l2_promotion": 128, "pdl": 0, "prefetch_stages": 0}');
INSERT INTO config VALUES(4,'sm90_wgmma:swap_ab=0,tile_m=128,schedule=cooperative,consumer_warpgroups=2,tile_n=256,instructions_n=1,tile_k=64,swizzle_a=128,swizzle_b=128,a_source=smem,producer_registers=40,cluster_m=1,cluster_n=1,cluster_k=1,split_k=1,epilogue=direct,stream_k=0,stages=4,raster=along_n,raster_group=16,cache_hint=none,l2_promotion=128,pdl=0,prefetch_stages=0','sm90_wgmma','{"swap_ab": 0, "tile_m": 128, "schedule": "cooperative", "consumer_warpgroups": 2, "tile_n": 256, "instructions_n": 1, "tile_k": 64, "swizzle_a": 128, "swizzle_b": 128, "a_source": "smem", "producer_registers": 40, "cluster_m": 1, "cluster_n": 1, "cluster_k": 1, "split_k": 1, "epilogue": "direct", "stream_k": 0, "stages": 4, "raster": "along_n", "raster_group": 16, "cache_hint": "none", "l2_promotion": 128, "pdl": 0, "prefetch_stages": 0}');
INSERT INTO config VALUES(5,'cublaslt:rank=0','cublaslt','{"rank": 0}');
INSERT INTO config VALUES(6,'sm90_wgmma:swap_ab=1,tile_m=64,schedule=cooperative,consumer_warpgroups=1,tile_n=16,instructions_n=1,tile_k=256,swizzle_a=128,swizzle_b=128,a_source=smem,producer_registers=0,cluster_m=1,cluster_n=1,cluster_k=2,split_k=1,epilogue=direct,stream_k=0,stages=8,raster=along_m,raster_group=1,cache_hint=stream_a,l2_promotion=128,pdl=1,prefetch_stages=0','sm90_wgmma','{"swap_ab": 1, "tile_m": 64, "schedule": "cooperative", "consumer_warpgroups": 1, "tile_n": 16, "instructions_n": 1, "tile_k": 256, "swizzle_a": 128, "swizzle_b": 128, "a_source": "smem", "producer_registers": 0, "cluster_m": 1, "cluster_n": 1, "cluster_k": 2, "split_k": 1, "epilogue": "direct", "stream_k": 0, "stages": 8, "raster": "along_m", "raster_group": 1, "cache_hint": "stream_a", "l2_promotion": 128, "pdl": 1, "prefetch_stages": 0}');
INSERT INTO config VALUES(7,'sm90_wgmma:swap_ab=1,tile_m=64,schedule=cooperative,consumer_warpgroups=1,tile_n=16,instructions_n=1,tile_k=256,swizzle_a=128,swizzle_b=128,a_source=smem,producer_registers=0,cluster_m=1,cluster_n=1,cluster_k=2,split_k=1,epilogue=direct,stream_k=0,stages=10,raster=along_m,raster_group=1,cache_hint=stream_a,l2_promotion=128,pdl=1,prefetch_stages=0','sm90_wgmma','{"swap_ab": 1, "tile_m": 64, "schedule": "cooperative", "consumer_warpgroups": 1, "tile_n": 16, "instructions_n": 1, "tile_k": 256, "swizzle_a": 128, "swizzle_b": 128, "a_source": "smem", "producer_registers": 0, "cluster_m": 1, "cluster_n": 1, "cluster_k": 2, "split_k": 1, "epilogue": "direct", "stream_k": 0, "stages": 10, "raster": "along_m", "raster_group": 1, "cache_hint": "stream_a", "l2_promotion": 128, "pdl": 1, "prefetch_stages": 0}');
INSERT INTO config VALUES(8,'sm90_wgmma:swap_ab=1,tile_m=64,schedule=multistage,consumer_warpgroups=1,tile_n=16,instructions_n=1,tile_k=256,swizzle_a=128,swizzle_b=128,a_source=smem,producer_registers=0,cluster_m=1,cluster_n=1,cluster_k=2,split_k=1,epilogue=direct,stream_k=0,stages=8,raster=along_m,raster_group=1,cache_hint=stream_a,l2_promotion=128,pdl=1,prefetch_stages=0','sm90_wgmma','{"swap_ab": 1, "tile_m": 64, "schedule": "multistage", "consumer_warpgroups": 1, "tile_n": 16, "instructions_n": 1, "tile_k": 256, "swizzle_a": 128, "swizzle_b": 128, "a_source": "smem", "producer_registers": 0, "cluster_m": 1, "cluster_n": 1, "cluster_k": 2, "split_k": 1, "epilogue": "direct", "stream_k": 0, "stages": 8, "raster": "along_m", "raster_group": 1, "cache_hint": "stream_a", "l2_promotion": 128, "pdl": 1, "prefetch_stages": 0}');
CREATE TABLE device (
	id INTEGER NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	CONSTRAINT pk_device PRIMARY KEY (id), 
	CONSTRAINT uq_device_name UNIQUE (name, kind)
);
INSERT INTO device VALUES(1,'NVIDIA H200','recorded');
CREATE TABLE problem (
	id INTEGER NOT NULL, 
	"key" VARCHAR(200) NOT NULL, 
	m INTEGER NOT NULL, 
	n INTEGER NOT NULL, 
	k INTEGER NOT NULL, 
	CONSTRAINT pk_problem PRIMARY KEY (id), 
	CONSTRAINT uq_problem_key UNIQUE ("key")
);
INSERT INTO problem VALUES(1,'gemm:bf16,bf16,bf16,f32:nt:4096x4096x4096:b1:none',4096,4096,4096);
INSERT INTO problem VALUES(2,'gemm:fp8_e4m3,fp8_e4m3,bf16,f32:nt:16x2112x7168:b1:none',16,2112,7168);
INSERT INTO problem VALUES(3,'gemm:bf16,bf16,bf16,f32:nt:24x2112x7168:b2:none',24,2112,7168);
INSERT INTO problem VALUES(4,'gemm:int8,int8,s32,s32:nt:24x2112x7168:b2:none',24,2112,7168);
CREATE TABLE provenance (
	id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	content JSON NOT NULL, 
	CONSTRAINT pk_provenance PRIMARY KEY (id), 
	CONSTRAINT uq_provenance_digest UNIQUE (digest)
);
INSERT INTO provenance VALUES(1,'cb9454fd6e30732429e5a488d3e64c8020d46d4194d48ad5306d6eee9ce0f254','{"device": "NVIDIA H200", "device_uuid": "GPU-5c763b4c-e6a7-f8ab-ba69-484134310762", "driver": "580.159.04", "nvrtc": "13.0", "kernel_source_digest": "a7f53d0c9b9c39eef54fca75ff16fe64d0b92a9e72b190a7b51b3bc5d83e0e80", "cublaslt": "130100", "gemmtune": "0+source", "seed": 77391384568194}');
INSERT INTO provenance VALUES(2,'e70777a0bd0f2d85743baf3c4bb3fd6b39e8a02d424aaa091c22022a5c449756','{"device": "NVIDIA H200", "device_uuid": "GPU-57fed135-fa6a-1f21-e567-5421697d2c88", "driver": "580.159.04", "nvrtc": "13.0", "kernel_source_digest": "a7f53d0c9b9c39eef54fca75ff16fe64d0b92a9e72b190a7b51b3bc5d83e0e80", "cublaslt": "130100", "gemmtune": "0+source", "seed": 9995253141138}');
CREATE TABLE study (
	id INTEGER NOT NULL, 
	problem_id INTEGER NOT NULL, 
	device_id INTEGER NOT NULL, 
	policy VARCHAR(40) NOT NULL, 
	family VARCHAR(40) NOT NULL, 
	source VARCHAR(64) NOT NULL, 
	generation INTEGER NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	stopped_because TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_study PRIMARY KEY (id), 
	CONSTRAINT fk_study_device_id FOREIGN KEY(device_id) REFERENCES device (id), 
	CONSTRAINT fk_study_problem_id FOREIGN KEY(problem_id) REFERENCES problem (id), 
	CONSTRAINT uq_study_problem_id UNIQUE (problem_id, device_id, policy, family, source, generation)
);
INSERT INTO study VALUES(1,1,1,'cold_graph','sm90_wgmma','f621915ead40936e',0,'finished','the budget of 4 candidates is spent','2026-11-23 01:18:50.918587');
INSERT INTO study VALUES(2,2,1,'cold_graph','sm90_wgmma','f621915ead40936e',0,'finished','the budget of 3 candidates is spent','2026-11-23 01:19:52.277797');
CREATE TABLE measurement (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	problem_id INTEGER NOT NULL, 
	device_id INTEGER NOT NULL, 
	config_id INTEGER NOT NULL, 
	provenance_id INTEGER NOT NULL, 
	stage VARCHAR(16) NOT NULL, 
	series INTEGER NOT NULL, 
	policy VARCHAR(40) NOT NULL, 
	outcome VARCHAR(24) NOT NULL, 
	median_us FLOAT, 
	samples_us JSON NOT NULL, 
	detail TEXT NOT NULL, 
	verification JSON, 
	clocks JSON, 
	build_digest VARCHAR(64) NOT NULL, 
	note TEXT NOT NULL, 
	taken_at DATETIME NOT NULL, 
	CONSTRAINT pk_measurement PRIMARY KEY (id), 
	CONSTRAINT ck_measurement_correct_is_verified CHECK (outcome <> 'correct' OR (median_us > 0 AND verification IS NOT NULL)), 
	CONSTRAINT fk_measurement_config_id FOREIGN KEY(config_id) REFERENCES config (id), 
	CONSTRAINT fk_measurement_device_id FOREIGN KEY(device_id) REFERENCES device (id), 
	CONSTRAINT fk_measurement_problem_id FOREIGN KEY(problem_id) REFERENCES problem (id), 
	CONSTRAINT fk_measurement_provenance_id FOREIGN KEY(provenance_id) REFERENCES provenance (id), 
	CONSTRAINT fk_measurement_study_id FOREIGN KEY(study_id) REFERENCES study (id), 
	CONSTRAINT uq_measurement_id_outcome UNIQUE (id, outcome), 
	CONSTRAINT uq_measurement_study_id UNIQUE (study_id, config_id, stage, series)
);
INSERT INTO measurement VALUES(1,1,1,1,1,1,'screen',0,'cold_graph','correct',193.95240000000001145,'[193.8284, 194.0623, 193.9276, 193.9772, 193.9524]','','{"elements": 16777216, "mismatches": 0, "worst_ratio": 0.9479597806930542, "reference": "float64 on the CUDA cores"}','{"sm_mhz": 1530, "memory_mhz": 3201, "power_w": 694.031, "temperature_c": 64, "throttle_reasons": ["sw_power_cap"]}','7ef0c26fc3108eef4b8ba211b7529d3fb829eb7da6ad90353cbba6101bbf1df4','pace 0.996','2026-11-23 01:18:54.773087');
INSERT INTO measurement VALUES(2,1,1,1,2,1,'screen',0,'cold_graph','correct',190.5053000000000054,'[190.0151, 190.6356, 189.9911, 190.5053, 191.3384]','','{"elements": 16777216, "mismatches": 0, "worst_ratio": 0.9479597806930542, "reference": "float64 on the CUDA cores"}','{"sm_mhz": 1545, "memory_mhz": 3201, "power_w": 688.175, "temperature_c": 63, "throttle_reasons": ["sw_power_cap"]}','b2638b3e83828196ebc4c109a0107d451bfa7a1933c9da2149aeb4adad6ac5f7','pace 0.964','2026-11-23 01:18:55.480053');
INSERT INTO measurement VALUES(3,1,1,1,3,1,'screen',0,'cold_graph','correct',190.20269999999999299,'[190.1167, 190.2027, 189.9653, 191.0355, 191.039]','','{"elements": 16777216, "mismatches": 0, "worst_ratio": 0.9479597806930542, "reference": "float64 on the CUDA cores"}','{"sm_mhz": 1530, "memory_mhz": 3201, "power_w": 688.903, "temperature_c": 64, "throttle_reasons": ["sw_power_cap"]}','9908dc28f5043f6e4bfec91f390973153752c3df7cf6177e9cc2656aacab2bf2','pace 0.968','2026-11-23 01:18:57.023031');
INSERT INTO measurement VALUES(4,1,1,1,4,1,'screen',0,'cold_graph','correct',194.27440000000001418,'[194.2744, 194.1914, 194.0181, 195.5559, 195.5198]','','{"elements": 16777216, "mismatches": 0, "worst_ratio": 0.9479597806930542, "reference": "float64 on the CUDA cores"}','{"sm_mhz": 1545, "memory_mhz": 3201, "power_w": 688.841, "temperature_c": 62, "throttle_reasons": ["sw_power_cap"]}','9f4a9ff89e4c110f98e922d51de631dcff6084c0b587cf0e0bdd146624195816','pace 1.015','2026-11-23 01:18:57.388707');
INSERT INTO measurement VALUES(5,1,1,1,3,1,'final',1,'cold_graph','correct',213.0151000000000181,'[214.9724, 213.1058, 222.6844, 210.624, 210.5991, 211.1609, 211.4276, 211.3244, 211.4311, 211.3422, 212.9742, 213.0204, 211.1822, 212.4338, 219.2, 260.3591, 290.4107, 234.9049, 226.7236, 214.1796, 214.1227, 215.1929, 210.176, 208.0889, 210.1156, 213.9449, 213.9484, 213.8098, 212.6364, 210.3253, 210.2471, 210.4747, 210.5991, 213.0773, 219.4773, 211.456, 211.3813, 210.5067, 210.5991, 218.0196, 220.512, 230.7271, 220.5831, 218.0836, 213.0098, 213.0204, 217.8738, 213.0347, 212.8924, 213.5502, 212.9742, 212.8711]','','{"elements": 16777216, "mismatches": 0, "worst_ratio": 0.9479597806930542, "reference": "float64 on the CUDA cores"}','{"sm_mhz": 1380, "memory_mhz": 3201, "power_w": 691.474, "temperature_c": 64, "throttle_reasons": ["sw_power_cap"]}','9908dc28f5043f6e4bfec91f390973153752c3df7cf6177e9cc2656aacab2bf2','','2026-11-23 01:18:57.407513');
INSERT INTO measurement VALUES(6,1,1,1,2,1,'final',1,'cold_graph','correct',212.67199999999999704,'[213.1022, 212.6791, 212.6364, 210.272, 210.2044, 210.176, 210.1973, 211.104, 215.9324, 210.2827, 212.608, 210.6809, 210.2258, 214.016, 219.0116, 261.5964, 261.2693, 247.072, 217.8489, 213.856, 213.6071, 213.7493, 210.2507, 207.9253, 210.4533, 212.5191, 213.696, 213.7707, 212.2738, 210.0622, 209.8133, 210.2364, 212.5831, 212.6471, 213.6604, 213.7102, 211.1324, 211.0222, 210.1618, 210.2187, 223.9751, 230.7662, 220.3307, 217.9413, 217.7956, 212.7858, 212.7076, 212.7111, 212.6649, 212.704, 212.6116, 214.08]','','{"elements": 16777216, "mismatches": 0, "worst_ratio": 0.9479597806930542, "reference": "float64 on the CUDA cores"}','{"sm_mhz": 1380, "memory_mhz": 3201, "power_w": 691.474, "temperature_c": 64, "throttle_reasons": ["sw_power_cap"]}','b2638b3e83828196ebc4c109a0107d451bfa7a1933c9da2149aeb4adad6ac5f7','','2026-11-23 01:18:57.407513');
INSERT INTO measurement VALUES(7,1,1,1,1,1,'final',1,'cold_graph','correct',216.68731343531817401,'[216.54877827480465, 216.81009580741843, 216.65960640321546, 216.71502046742086, 216.68731343531817]','','{"elements": 16777216, "mismatches": 0, "worst_ratio": 0.9479597806930542, "reference": "float64 on the CUDA cores"}','{"sm_mhz": 1530, "memory_mhz": 3201, "power_w": 694.031, "temperature_c": 64, "throttle_reasons": ["sw_power_cap"]}','7ef0c26fc3108eef4b8ba211b7529d3fb829eb7da6ad90353cbba6101bbf1df4','pace 0.996; screened only, times 1.117 as in finals','2026-11-23 01:18:57.407513');
INSERT INTO measurement VALUES(8,1,1,1,4,1,'final',1,'cold_graph','correct',217.04705796503873215,'[217.04705796503873, 216.95432878501757, 216.76071472600958, 218.47877416018432, 218.43844255297032]','','{"elements": 16777216, "mismatches": 0, "worst_ratio": 0.9479597806930542, "reference": "float64 on the CUDA cores"}','{"sm_mhz": 1545, "memory_mhz": 3201, "power_w": 688.841, "temperature_c": 62, "throttle_reasons": ["sw_power_cap"]}','9f4a9ff89e4c110f98e922d51de631dcff6084c0b587cf0e0bdd146624195816','pace 1.015; screened only, times 1.117 as in finals','2026-11-23 01:18:57.407513');
INSERT INTO measurement VALUES(9,1,1,1,5,1,'final',1,'cold_graph','correct',220.86934999999999719,'[221.0987, 220.9564, 218.3609, 218.432, 218.5031, 218.4604, 218.2827, 219.5235, 219.3031, 219.3387, 220.9067, 220.7289, 218.4, 219.6978, 227.4738, 249.9947, 308.3555, 275.4382, 226.4285, 222.6311, 222.1796, 222.1618, 218.0658, 215.4418, 220.8533, 222.1191, 222.1191, 222.6596, 220.5013, 218.0551, 218.0373, 218.5422, 220.8711, 220.7467, 222.1511, 219.5769, 219.5733, 218.3645, 218.3964, 221.0916, 228.6933, 238.1013, 233.984, 233.088, 226.24, 221.0809, 220.8107, 221.0098, 220.9351, 220.8533, 220.9422, 220.8676]','','{"elements": 16777216, "mismatches": 0, "worst_ratio": 0.9479597806930542, "reference": "float64 on the CUDA cores"}','{"sm_mhz": 1380, "memory_mhz": 3201, "power_w": 691.474, "temperature_c": 64, "throttle_reasons": ["sw_power_cap"]}','','algorithm 66, tile 256x128, stages 64xauto, cluster 1x2x1, split-K 1','2026-11-23 01:18:57.407513');
INSERT INTO measurement VALUES(10,2,2,1,6,2,'screen',0,'cold_graph','correct',5.5278999999999998138,'[5.5253, 5.5279, 5.5344, 5.5261, 5.5317]','','{"elements": 33792, "mismatches": 0, "worst_ratio": 0.06687703728675842, "reference": "float64 on the CUDA cores"}','{"sm_mhz": 1980, "memory_mhz": 3201, "power_w": 352.35, "temperature_c": 47, "throttle_reasons": []}','7d0d614bce10382d5d875a9731cc43aa34278188be9d3f63fea45bcb738be425','','2026-11-23 01:19:55.050367');
INSERT INTO measurement VALUES(11,2,2,1,7,2,'screen',0,'cold_graph','correct',5.5757000000000003225,'[5.5759, 5.5719, 5.576, 5.5718, 5.5757]','','{"elements": 33792, "mismatches": 0, "worst_ratio": 0.06687703728675842, "reference": "float64 on the CUDA cores"}','{"sm_mhz": 1980, "memory_mhz": 3201, "power_w": 327.517, "temperature_c": 47, "throttle_reasons": []}','32586110837114fd569e10965450f91ceaeb32f64fbadb3b264b97da76d70db6','','2026-11-23 01:19:55.220283');
INSERT INTO measurement VALUES(12,2,2,1,8,2,'screen',0,'cold_graph','correct',5.9977999999999997982,'[5.9841, 5.9952, 6.0151, 6.004, 5.9978]','','{"elements": 33792, "mismatches": 0, "worst_ratio": 0.06687703728675842, "reference": "float64 on the CUDA cores"}','{"sm_mhz": 1980, "memory_mhz": 3201, "power_w": 348.923, "temperature_c": 47, "throttle_reasons": []}','26a42f6475ac01e61dc1f07d9cd8c55bd96d17630439bd442076a698bb195ab1','','2026-11-23 01:19:55.776832');
INSERT INTO measurement VALUES(13,2,2,1,6,2,'final',1,'cold_graph','correct',5.5772999999999992581,'[5.6286, 5.5775, 5.5702, 5.5791, 5.5805, 5.5662, 5.5721, 5.5703, 5.5705, 5.5727, 5.5779, 5.5848, 5.5729, 5.5771, 5.5717, 5.5689, 5.5805, 5.5902, 5.6214, 5.581]','','{"elements": 33792, "mismatches": 0, "worst_ratio": 0.06687703728675842, "reference": "float64 on the CUDA cores"}','{"sm_mhz": 1980, "memory_mhz": 3201, "power_w": 403.4, "temperature_c": 49, "throttle_reasons": []}','7d0d614bce10382d5d875a9731cc43aa34278188be9d3f63fea45bcb738be425','','2026-11-23 01:19:55.800958');
INSERT INTO measurement VALUES(14,2,2,1,7,2,'final',1,'cold_graph','correct',5.5929500000000000881,'[5.5731, 5.651, 5.5986, 5.5787, 5.5927, 5.5958, 5.5928, 5.5968, 5.58, 5.5943, 5.5931, 5.5941, 5.596, 5.592, 5.5792, 5.5952, 5.5769, 5.5878, 5.5901, 5.6265]','','{"elements": 33792, "mismatches": 0, "worst_ratio": 0.06687703728675842, "reference": "float64 on the CUDA cores"}','{"sm_mhz": 1980, "memory_mhz": 3201, "power_w": 403.4, "temperature_c": 49, "throttle_reasons": []}','32586110837114fd569e10965450f91ceaeb32f64fbadb3b264b97da76d70db6','','2026-11-23 01:19:55.800958');
INSERT INTO measurement VALUES(15,2,2,1,8,2,'final',1,'cold_graph','correct',6.0554000000000005599,'[6.0398, 6.0466, 6.0706, 6.0549, 6.0609, 6.1059, 6.0423, 6.0569, 6.0728, 6.0677, 6.0559, 6.0566, 6.0475, 6.0431, 6.0473, 6.0535, 6.0697, 6.0561, 6.0445, 6.0309]','','{"elements": 33792, "mismatches": 0, "worst_ratio": 0.06687703728675842, "reference": "float64 on the CUDA cores"}','{"sm_mhz": 1980, "memory_mhz": 3201, "power_w": 403.4, "temperature_c": 49, "throttle_reasons": []}','26a42f6475ac01e61dc1f07d9cd8c55bd96d17630439bd442076a698bb195ab1','','2026-11-23 01:19:55.800958');
INSERT INTO measurement VALUES(16,2,2,1,5,2,'final',1,'cold_graph','correct',8.6168000000000013471,'[8.6173, 8.6099, 8.6243, 8.6225, 8.6211, 8.6238, 8.6163, 8.6037, 8.6123, 8.611, 8.6199, 8.6026, 8.6058, 8.6179, 8.6185, 8.6066, 8.6663, 8.6579, 8.5621, 8.5617]','','{"elements": 33792, "mismatches": 0, "worst_ratio": 0.06687703728675842, "reference": "float64 on the CUDA cores"}','{"sm_mhz": 1980, "memory_mhz": 3201, "power_w": 403.4, "temperature_c": 49, "throttle_reasons": []}','','algorithm 66, tile 64x16, stages 128xauto, cluster 4x1x1, split-K 2','2026-11-23 01:19:55.800958');
CREATE TABLE best (
	id INTEGER NOT NULL, 
	problem_id INTEGER NOT NULL, 
	device_id INTEGER NOT NULL, 
	policy VARCHAR(40) NOT NULL, 
	measurement_id INTEGER NOT NULL, 
	outcome VARCHAR(24) NOT NULL, 
	versus_first JSON, 
	versus_best JSON, 
	runner_up VARCHAR(500) NOT NULL, 
	tried INTEGER NOT NULL, 
	failed JSON NOT NULL, 
	version INTEGER NOT NULL, 
	CONSTRAINT pk_best PRIMARY KEY (id), 
	CONSTRAINT ck_best_only_correct CHECK (outcome = 'correct'), 
	CONSTRAINT fk_best_device_id FOREIGN KEY(device_id) REFERENCES device (id), 
	CONSTRAINT fk_best_measurement_outcome FOREIGN KEY(measurement_id, outcome) REFERENCES measurement (id, outcome), 
	CONSTRAINT fk_best_problem_id FOREIGN KEY(problem_id) REFERENCES problem (id), 
	CONSTRAINT uq_best_problem_id UNIQUE (problem_id, device_id, policy)
);
INSERT INTO best VALUES(1,1,1,'cold_graph',6,'correct','{"value": 1.0385445662804695, "low": 1.034375955552671, "high": 1.0398839337006618, "paired": true}','{"value": 1.0385445662804695, "low": 1.034375955552671, "high": 1.0398839337006618, "paired": true}','sm90_wgmma:swap_ab=0,tile_m=128,schedule=pingpong,consumer_warpgroups=2,tile_n=128,instructions_n=1,tile_k=64,swizzle_a=128,swizzle_b=128,a_source=smem,producer_registers=40,cluster_m=1,cluster_n=2,cluster_k=1,split_k=1,epilogue=direct,stream_k=0,stages=7,raster=along_n,raster_group=16,cache_hint=none,l2_promotion=128,pdl=0,prefetch_stages=0',4,'{}',1);
INSERT INTO best VALUES(2,2,1,'cold_graph',14,'correct','{"value": 1.5406538588759064, "low": 1.5387800669664442, "high": 1.5421859204322814, "paired": true}','{"value": 1.5406538588759064, "low": 1.5387800669664442, "high": 1.5421859204322814, "paired": true}','sm90_wgmma:swap_ab=1,tile_m=64,schedule=cooperative,consumer_warpgroups=1,tile_n=16,instructions_n=1,tile_k=256,swizzle_a=128,swizzle_b=128,a_source=smem,producer_registers=0,cluster_m=1,cluster_n=1,cluster_k=2,split_k=1,epilogue=direct,stream_k=0,stages=8,raster=along_m,raster_group=1,cache_hint=stream_a,l2_promotion=128,pdl=1,prefetch_stages=0',3,'{}',2);
CREATE TABLE token (
	id INTEGER NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	scopes JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	expires_at DATETIME, 
	revoked_at DATETIME, 
	CONSTRAINT pk_token PRIMARY KEY (id), 
	CONSTRAINT uq_token_name UNIQUE (name), 
	CONSTRAINT uq_token_digest UNIQUE (digest)
);
CREATE TABLE counter (
	name VARCHAR(40) NOT NULL, 
	value BIGINT NOT NULL, 
	CONSTRAINT pk_counter PRIMARY KEY (name)
);
INSERT INTO counter VALUES('best',2);
INSERT INTO counter VALUES('token',0);
INSERT INTO counter VALUES('measurement',9);
CREATE TABLE campaign (
	id INTEGER NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	stopped_because TEXT NOT NULL, 
	priority INTEGER NOT NULL, 
	policy VARCHAR(40) NOT NULL, 
	budget JSON NOT NULL, 
	idempotency_key VARCHAR(200), 
	request_digest VARCHAR(64) NOT NULL, 
	created_at DATETIME NOT NULL, 
	finished_at DATETIME, 
	CONSTRAINT pk_campaign PRIMARY KEY (id), 
	CONSTRAINT ck_campaign_status CHECK (status IN ('running', 'paused', 'cancelled', 'finished')), 
	CONSTRAINT uq_campaign_idempotency_key UNIQUE (idempotency_key)
);
INSERT INTO campaign VALUES(1,'m=24 n=2112 k=7168 dtype=int8,bf16 layout=nt batch=2 epilogue=none','running','',0,'cold_graph','{"candidates": 96, "rounds": 30, "target": null, "gpu_seconds": null}',NULL,'d097fb9a7e96a2a7fc168a1bb2bafaffd21ddffca5206869b1129a807e7b2c08','2026-11-23 01:20:01.738933',NULL);
CREATE TABLE worker (
	id INTEGER NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	slot VARCHAR(200) NOT NULL, 
	queue VARCHAR(128) NOT NULL, 
	device_id INTEGER NOT NULL, 
	facts JSON NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	gone_because TEXT NOT NULL, 
	registered_at DATETIME NOT NULL, 
	beat_at DATETIME NOT NULL, 
	rounds INTEGER NOT NULL, 
	busy_seconds FLOAT NOT NULL, 
	engine_id BIGINT, 
	CONSTRAINT pk_worker PRIMARY KEY (id), 
	CONSTRAINT ck_worker_status CHECK (status IN ('live', 'draining', 'gone')), 
	CONSTRAINT fk_worker_device_id FOREIGN KEY(device_id) REFERENCES device (id)
);
CREATE TABLE campaign_problem (
	id INTEGER NOT NULL, 
	campaign_id INTEGER NOT NULL, 
	problem_id INTEGER NOT NULL, 
	device_id INTEGER NOT NULL, 
	queue VARCHAR(128) NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	started BOOLEAN NOT NULL, 
	closing BOOLEAN NOT NULL, 
	attempts INTEGER NOT NULL, 
	suspects JSON NOT NULL, 
	reason TEXT NOT NULL, 
	failing_config VARCHAR(500) NOT NULL, 
	rounds INTEGER NOT NULL, 
	tried INTEGER NOT NULL, 
	failed JSON NOT NULL, 
	gpu_seconds FLOAT NOT NULL, 
	measurement_id INTEGER, 
	versus_first JSON, 
	versus_best JSON, 
	ended_at DATETIME, 
	CONSTRAINT pk_campaign_problem PRIMARY KEY (id), 
	CONSTRAINT ck_campaign_problem_status CHECK (status IN ('waiting', 'open', 'done', 'parked', 'skipped')), 
	CONSTRAINT fk_campaign_problem_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaign (id), 
	CONSTRAINT fk_campaign_problem_device_id FOREIGN KEY(device_id) REFERENCES device (id), 
	CONSTRAINT fk_campaign_problem_measurement_id FOREIGN KEY(measurement_id) REFERENCES measurement (id), 
	CONSTRAINT fk_campaign_problem_problem_id FOREIGN KEY(problem_id) REFERENCES problem (id), 
	CONSTRAINT uq_campaign_problem_campaign_id UNIQUE (campaign_id, problem_id, device_id)
);
INSERT INTO campaign_problem VALUES(1,1,4,1,'NVIDIA H200/sm_90a/recorded','open',0,0,0,'[]','','',0,0,'{}',0.0,NULL,NULL,NULL,NULL);
INSERT INTO campaign_problem VALUES(2,1,3,1,'NVIDIA H200/sm_90a/recorded','open',0,0,0,'[]','','',0,0,'{}',0.0,NULL,NULL,NULL,NULL);
CREATE TABLE round (
	id INTEGER NOT NULL, 
	campaign_problem_id INTEGER NOT NULL, 
	problem_id INTEGER NOT NULL, 
	queue VARCHAR(128) NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	priority INTEGER NOT NULL, 
	job_id BIGINT, 
	lease VARCHAR(32), 
	worker_id INTEGER, 
	study_id INTEGER, 
	announced_stage VARCHAR(16) NOT NULL, 
	announced JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	claimed_at DATETIME, 
	ended_at DATETIME, 
	busy_seconds FLOAT NOT NULL, 
	measured INTEGER NOT NULL, 
	reason TEXT NOT NULL, 
	CONSTRAINT pk_round PRIMARY KEY (id), 
	CONSTRAINT ck_round_status CHECK (status IN ('queued', 'running', 'done', 'failed', 'lost', 'withdrawn')), 
	CONSTRAINT ck_round_leased CHECK (status IN ('queued', 'withdrawn') OR (lease IS NOT NULL AND worker_id IS NOT NULL)), 
	CONSTRAINT fk_round_campaign_problem_id FOREIGN KEY(campaign_problem_id) REFERENCES campaign_problem (id), 
	CONSTRAINT fk_round_problem_id FOREIGN KEY(problem_id) REFERENCES problem (id), 
	CONSTRAINT fk_round_study_id FOREIGN KEY(study_id) REFERENCES study (id), 
	CONSTRAINT fk_round_worker_id FOREIGN KEY(worker_id) REFERENCES worker (id), 
	CONSTRAINT uq_round_job_id UNIQUE (job_id), 
	CONSTRAINT uq_round_lease UNIQUE (lease)
);
INSERT INTO round VALUES(1,2,3,'NVIDIA H200/sm_90a/recorded','queued',0,1,NULL,NULL,NULL,'','[]','2026-11-23 01:20:01.783548',NULL,NULL,0.0,0,'');
INSERT INTO round VALUES(2,1,4,'NVIDIA H200/sm_90a/recorded','queued',0,2,NULL,NULL,NULL,'','[]','2026-11-23 01:20:01.783548',NULL,NULL,0.0,0,'');
CREATE TABLE build (
	id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	arch VARCHAR(16) NOT NULL, 
	nvrtc VARCHAR(16) NOT NULL, 
	problem_key VARCHAR(200) NOT NULL, 
	config_key VARCHAR(500) NOT NULL, 
	registers INTEGER NOT NULL, 
	warnings JSON NOT NULL, 
	seconds FLOAT NOT NULL, 
	cubin_sha256 VARCHAR(64) NOT NULL, 
	cubin BLOB NOT NULL, 
	offered_by VARCHAR(100) NOT NULL, 
	offered_at DATETIME NOT NULL, 
	CONSTRAINT pk_build PRIMARY KEY (id), 
	CONSTRAINT uq_build_digest UNIQUE (digest)
);
CREATE INDEX ix_config_family ON config (family);
CREATE INDEX ix_measurement_problem_outcome ON measurement (problem_id, outcome);
CREATE INDEX ix_measurement_study_id ON measurement (study_id);
CREATE TRIGGER measurement_no_update BEFORE UPDATE ON measurement BEGIN SELECT RAISE(ABORT, 'measurement is append-only'); END;
CREATE TRIGGER measurement_no_delete BEFORE DELETE ON measurement BEGIN SELECT RAISE(ABORT, 'measurement is append-only'); END;
CREATE TRIGGER provenance_no_update BEFORE UPDATE ON provenance BEGIN SELECT RAISE(ABORT, 'provenance is append-only'); END;
CREATE TRIGGER provenance_no_delete BEFORE DELETE ON provenance BEGIN SELECT RAISE(ABORT, 'provenance is append-only'); END;
CREATE UNIQUE INDEX ix_best_version ON best (version);
CREATE INDEX ix_campaign_status_priority ON campaign (status, priority, id);
CREATE INDEX ix_worker_status_beat_at ON worker (status, beat_at);
CREATE UNIQUE INDEX uq_worker_slot ON worker (slot) WHERE status <> 'gone';
CREATE INDEX ix_campaign_problem_next ON campaign_problem (campaign_id, status, queue, started, id);
CREATE INDEX ix_campaign_problem_problem_id ON campaign_problem (problem_id, queue);
CREATE INDEX ix_round_campaign_problem_id ON round (campaign_problem_id);
CREATE INDEX ix_round_ended_at ON round (ended_at);
CREATE INDEX ix_round_queue ON round (queue, status, priority, campaign_problem_id);
CREATE UNIQUE INDEX uq_round_open_problem ON round (problem_id, queue) WHERE status IN ('queued', 'running');
CREATE UNIQUE INDEX uq_round_running_worker ON round (worker_id) WHERE status = 'running';
CREATE INDEX ix_build_arch ON build (arch);
COMMIT;
